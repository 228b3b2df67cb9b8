"""`policy`: shows which line counts, replaces the policy if nobody else has, and explains the next round."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paimon_cli import Catalog, Table
from paimon_cli.cli.app import app
from paimon_cli.errors import Conflict


def run(*arguments: object, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def items(*arguments: object) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run(*arguments, "-o", "json")[0])["items"]
    return found


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "2"}
    table = Table.create(tmp_path / "wh/shop.db/orders", columns=["id BIGINT NOT NULL"], primary_key=["id"], options=options)
    for _ in range(3):
        table.write([{"id": 1}], compact="none")
    return tmp_path / "wh"


def policy(warehouse: Path, text: str | bytes) -> Path:
    path = warehouse / ".paimon-cli/policy.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def new(warehouse: Path, text: str) -> Path:
    path = warehouse.parent / "new.yaml"
    path.write_text(text)
    return path


def test_show_says_which_line_counts(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = policy(
        warehouse, "catalog:\n  windows: nights\n  retention: {snapshots: 1 s}\ntables:\n  shop.ord*:\n    windows: sat\n"
    )
    own = warehouse.parent / "own.yaml"
    own.write_text("warehouse: /elsewhere\npolicy:\n  tables:\n    shop.orders:\n      retention: {snapshots: 2 d}\n")
    monkeypatch.setenv("PAIMON_CLI_CONFIG", str(own))
    for name in ("shop.orders", warehouse / "shop.db/orders"):
        rows = items("policy", "show", name, "--warehouse", warehouse)
        assert [(row["key"], row["value"], row["source"], row["line"], row["effect"]) for row in rows] == [
            ("windows", "nights", str(path), 2, "overridden"),
            ("retention.snapshots", "1 s", str(path), 3, "overridden"),
            ("windows", "sat", str(path), 6, "in force"),
            ("retention.snapshots", "2 d", str(own), 5, "in force"),
        ]
    assert [row["line"] for row in items("policy", "show", "shop", "--warehouse", warehouse)] == [2, 3, 6, 5]
    (warehouse / "other.db").mkdir()
    assert items("policy", "show", "other", "--warehouse", warehouse)[-1]["line"] == 3
    assert len(items("policy", "show", "--warehouse", warehouse)) == 4


def test_profiles_have_policies_of_their_own(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = warehouse.parent / "own.yaml"
    text = "policy: {catalog: {windows: sat}}\nprofiles:\n  prod:\n    warehouse: %s\n    policy: {catalog: {windows: nights}}\n"
    own.write_text(text % warehouse)
    monkeypatch.setenv("PAIMON_CLI_CONFIG", str(own))
    rows = items("policy", "show", "shop.orders", "--profile", "prod")
    assert [(row["value"], row["effect"]) for row in rows] == [("sat", "overridden"), ("nights", "in force")]
    assert items("config", "show", "--profile", "prod")


def test_a_policy_of_the_current_directory_is_refused(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(warehouse.parent)
    Path("paimon.yaml").write_text("policy: {catalog: {hooks: evil}}\n")
    assert "cannot permit anything" in run("policy", "show", "--warehouse", warehouse, code=2)[1]


def test_set_replaces_what_is_still_there(warehouse: Path) -> None:
    first, _ = run("policy", "set", new(warehouse, "catalog: {windows: sat}"), "--warehouse", warehouse)
    assert "1 setting" in first and "was none" in first
    version = json.loads(run("policy", "show", "--warehouse", warehouse, "-o", "json")[0])["version"]
    run("policy", "set", new(warehouse, "catalog: {windows: sun}"), "--warehouse", warehouse, "--if-version", version)
    _, said = run("policy", "set", new(warehouse, "{}"), "--warehouse", warehouse, "--if-version", version, code=5)
    assert "changed meanwhile" in said
    run("policy", "set", new(warehouse, "{}"), "--warehouse", warehouse, "--if-version", "none", code=5)
    assert (warehouse / ".paimon-cli/policy.yaml").read_text() == "catalog: {windows: sun}"


def test_set_says_that_retention_of_a_warehouse_only_lengthens(warehouse: Path) -> None:
    text = "tables:\n  'shop.*':\n    retention: {snapshots: 1 s}"
    said, _ = run("policy", "set", new(warehouse, text), "--warehouse", warehouse)
    assert "retention.snapshots: 1 s (new.yaml:3): no effect on tables that keep more already" in said
    said, _ = run("policy", "set", new(warehouse, "catalog: {windows: sat}"), "--warehouse", warehouse)
    assert "no effect" not in said


def test_of_several_that_replace_one_version_one_succeeds(warehouse: Path) -> None:
    catalog = Catalog(str(warehouse))
    catalog.policy.set(str(new(warehouse, "{}")))
    version = catalog.policy.version()

    def replaced(number: int) -> bool:
        path = warehouse.parent / f"{number}.yaml"
        path.write_text(f"catalog: {{caps: {{runs: {number + 1}}}}}")
        try:
            catalog.policy.set(str(path), if_version=version)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert [*pool.map(replaced, range(6))].count(True) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("catalog: {gaol: latency}", "unknown key 'gaol'"),
        ("catalog: {hooks: 'rm -rf /'}", "hooks is not taken from a warehouse"),
        ("catalog: {hosts: evil.example}", "hosts is not taken from a warehouse"),
        ("catalog: !!python/object/apply:os.system [id]", "tags are refused"),
        ("x: &x {}\ncatalog: *x", "anchors and aliases are refused"),
    ],
)
def test_set_refuses_what_would_not_count(warehouse: Path, text: str, said: str) -> None:
    path = policy(warehouse, "catalog: {windows: sat}")
    assert said in run("policy", "set", new(warehouse, text), "--warehouse", warehouse, code=2)[1]
    assert path.read_text() == "catalog: {windows: sat}"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("catalog: {gaol: latency}", 2),
        ("catalog: {windows: [nights", 2),
        (b"\xff\xfe", 2),
        ("a: " + "[" * 100_000, 2),
        ("#" * (1 << 21), 10),
        ("catalog: {timezone: ../../../etc/passwd}", 2),
    ],
    ids=range(6),
)
def test_maintain_changes_nothing_under_a_policy_that_nobody_can_read(warehouse: Path, text: str | bytes, code: int) -> None:
    policy(warehouse, text)
    before = sorted(warehouse.rglob("*"))
    _, said = run("maintain", "--all-tables", "--warehouse", warehouse, "--yes", code=code)
    assert "policy.yaml" in said and "\x1b" not in said
    run("maintain", "--watch", "--max-rounds", 1, "--warehouse", warehouse, "--yes", code=code)
    run("maintain", warehouse / "shop.db/orders", "--dry-run", code=code)
    assert sorted(warehouse.rglob("*")) == before
    (row,) = (row for row in items_of_health(warehouse) if row["table"] == "policy.yaml")
    assert row["verdict"] == "critical"


def items_of_health(warehouse: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(
        run("health", "--database", "shop", "--warehouse", warehouse, "-o", "json", code=4)[0]
    )["items"]
    return found


def test_a_link_is_no_policy(warehouse: Path, tmp_path: Path) -> None:
    (warehouse / ".paimon-cli").mkdir()
    (tmp_path / "elsewhere.yaml").write_text("catalog: {windows: sat}")
    os.symlink(tmp_path / "elsewhere.yaml", warehouse / ".paimon-cli/policy.yaml")
    assert "is a link" in run("policy", "show", "--warehouse", warehouse, code=10)[1]
    run("policy", "set", new(warehouse, "{}"), "--warehouse", warehouse, code=10)


def test_what_a_warehouse_may_not_ask_is_a_finding(warehouse: Path) -> None:
    """What it asks of partitions concerns tables that have some."""
    options = {"bucket": "1"}
    columns = ["id BIGINT NOT NULL", "dt STRING NOT NULL"]
    Table.create(
        warehouse / "shop.db/days", columns=columns, primary_key=["id", "dt"], partition_by=["dt"], options=options
    ).write([{"id": 1, "dt": "a"}])
    policy(warehouse, "catalog:\n  hooks: 'curl https://evil.example'\n  retention: {partitions: 1 d, snapshots: 1 s}\n")
    rows = {row["table"]: row for row in items_of_health(warehouse)}
    of_policy, of_table, of_days = (
        [finding for finding in rows[name]["findings"] if finding["code"] == "PD035"]  # type: ignore[attr-defined]
        for name in ("policy.yaml", "shop.orders", "shop.days")
    )
    assert "hooks (policy.yaml:2)" in of_policy[0]["message"] and of_policy[0]["severity"] == "warning"
    assert "retention.partitions 1 d (policy.yaml:3)" in of_days[0]["message"]
    assert "retention.partitions" not in of_table[0]["message"]
    assert "the table has no partitions" in run("policy", "show", "shop.orders", "--warehouse", warehouse)[0]
    assert "retention.snapshots 1 s (policy.yaml:3): snapshot.time-retained of the table is 1 h" in of_table[0]["message"]
    said, _ = run("maintain", "--all-tables", "--warehouse", warehouse, "--yes", code=4)
    assert "compacted" in said and "hooks (policy.yaml:2)" in said and "4 findings left" in said
    assert "2 findings left" in run("maintain", "shop.orders", "--warehouse", warehouse, "--yes", code=4)[0]
    figures = warehouse.parent / "figures.prom"
    watch = ("--watch", "--max-rounds", 1, "--metrics-file", figures)
    run("maintain", *watch, "--warehouse", warehouse, "--yes")
    assert 'paimon_cli_findings{code="PD035",severity="warning",table="shop.orders"} 2.0' in figures.read_text()


def test_hints_about_a_policy_name_its_warehouse(warehouse: Path) -> None:
    run("policy", "set", new(warehouse, "catalog: {windows: sat}"), "--warehouse", warehouse)
    _, said = run("policy", "set", new(warehouse, "{}"), "--warehouse", warehouse, "--if-version", "none", code=5)
    assert f"paimon-cli policy show --warehouse {warehouse}" in said
    policy(warehouse, "catalog: {gaol: cost}")
    said, _ = run("health", warehouse / "shop.db/orders", code=4)
    assert f"paimon-cli policy show --warehouse {warehouse}" in said


def test_a_tag_that_is_kept_longer_than_the_policy_says_is_a_finding(warehouse: Path) -> None:
    policy(warehouse, "catalog:\n  retention: {tags: 1 d}\n")
    orders = ("shop.orders", "--warehouse", warehouse)
    run("tags", "create", "shop.orders", "brief", "--time-retained", "1h", "--warehouse", warehouse)
    assert "in force" in run("policy", "show", *orders)[0]
    run("tags", "create", "shop.orders", "long", "--time-retained", "30d", "--warehouse", warehouse)
    assert "a tag of the table has a limit of 30 d" in run("policy", "show", *orders)[0]
    (row,) = (row for row in items_of_health(warehouse) if row["table"] == "shop.orders")
    messages = [finding["message"] for finding in row["findings"] if finding["code"] == "PD035"]  # type: ignore[attr-defined]
    assert len(messages) == 1 and "retention.tags 1 d (policy.yaml:2): a tag of the table" in messages[0]
    assert "retention.tags" not in run("policy", "explain", *orders)[0], "it is not in force"


def test_all_mistakes_are_one_line_of_a_finding(warehouse: Path) -> None:
    policy(warehouse, "catalog:\n  gaol: cost\n  windows: nihgts\n")
    (row,) = [row for row in items_of_health(warehouse) if row["table"] == "policy.yaml"]
    (finding,) = list(row["findings"])  # type: ignore[call-overload]
    assert "has 2 mistakes: " in finding["message"] and "\n" not in finding["message"] and "\\n" not in finding["message"]
    assert "; " in finding["message"] and "policy.yaml:3: windows" in finding["message"]


def test_explain_fails_with_its_only_table_and_names_one_of_several(warehouse: Path) -> None:
    run("policy", "explain", "shop.none", "--warehouse", warehouse, code=3)
    broken = warehouse / "shop.db/broken/schema/schema-0"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    told = json.loads(run("policy", "explain", "--warehouse", warehouse, "-o", "json", code=9)[0])["items"]
    assert [(row["table"], row["decision"]) for row in told] == [("shop.broken", "failed"), ("shop.orders", "compact")]
    assert "cannot read schema file" in told[0]["error"]


def test_explain_shows_the_decision_with_its_arithmetic(warehouse: Path) -> None:
    policy(warehouse, "databases:\n  shop:\n    caps: {bytes: 5 b}\n")
    (row,) = items("policy", "explain", "shop", "--warehouse", warehouse)
    assert (row["decision"], row["left_buckets"]) == ("above its caps", 1)
    assert "> 5 (--max-bytes, caps.bytes); it waits until that is at least" in str(row["why_not"]) and row["policy"] == [
        "caps.bytes: 5 b (policy.yaml:3)"
    ]
    policy(warehouse, "{}")
    (row,) = items("policy", "explain", warehouse / "shop.db/orders")
    assert (row["decision"], row["buckets"], row["policy"]) == ("compact", 1, [])
    assert ">=" in str(row["why"])


def test_hooks_are_told_about_the_tables_of_their_line(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = warehouse.parent / "told"
    own = warehouse.parent / "own.yaml"
    own.write_text(f"policy:\n  tables:\n    shop.orders: {{hooks: tee -a {told}}}\n    shop.x*: {{hooks: tee -a {told}.x}}\n")
    monkeypatch.setenv("PAIMON_CLI_CONFIG", str(own))
    run("maintain", "--watch", "--max-rounds", 1, "--warehouse", warehouse, "--yes")
    events = [json.loads(line) for line in told.read_text().replace("}{", "}\n{").splitlines()]
    assert [(event["table"], event["kind"]) for event in events] == [("shop.orders", "COMPACT")]
    assert not Path(f"{told}.x").exists()
    _, said = run("maintain", "--all-tables", "--warehouse", warehouse, "--yes")
    assert "only a service tells hooks, so those of own.yaml:3, own.yaml:4 hear nothing of this run" in said


def test_a_hook_that_cannot_be_used_stops_no_other(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, own = warehouse.parent / "told", warehouse.parent / "own.yaml"
    own.write_text(f"policy:\n  catalog: {{hooks: tee -a {told}}}\n  tables:\n    shop.x*: {{hooks: no-such-program}}\n")
    monkeypatch.setenv("PAIMON_CLI_CONFIG", str(own))
    _, said = run("maintain", "--watch", "--max-rounds", 1, "--warehouse", warehouse, "--yes")
    assert "the hook of own.yaml:4 is left out: there is no such program: no-such-program" in said
    assert json.loads(told.read_text())["table"] == "shop.orders"


def test_show_and_explain_say_of_hooks_what_maintain_says(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = warehouse.parent / "own.yaml"
    lines = {
        "shop.a": "no-such-program --token swordfish",
        "shop.b": "https://me:swordfish@example.com/x",
        "shop.c": """'echo "half'""",
        "shop.d": "''",
        "shop.e": "[tee -a /dev/null, no-such-program]",
        "shop.f": "tee -a /dev/null",
        "shop.orders": "no-such-program",
    }
    own.write_text("policy:\n  tables:\n" + "".join(f"    {name}: {{hooks: {hook}}}\n" for name, hook in lines.items()))
    monkeypatch.setenv("PAIMON_CLI_CONFIG", str(own))
    rows = {str(row["pattern"]): row for row in items("policy", "show", "--warehouse", warehouse)}
    assert {name: row["effect"] for name, row in rows.items()} == {
        name: "in force" if name in ("shop.e", "shop.f") else "no effect" for name in lines
    }
    _, said = run("maintain", "--watch", "--max-rounds", 1, "--warehouse", warehouse, "--yes")
    for number, name in enumerate(lines, 3):
        why = str(rows[name]["why"])
        if name == "shop.f":
            assert not why
        elif name == "shop.e":
            assert why == "left out: hook 2: there is no such program: no-such-program"
        else:
            reason = why.removeprefix("left out: ")
            (line,) = (line for line in said.splitlines() if f"own.yaml:{number}" in line)
            assert f" is left out: {reason}" in line and "swordfish" not in why
    (row,) = items("policy", "show", "shop.orders", "--warehouse", warehouse)
    assert row["effect"] == "no effect"
    (decision,) = items("policy", "explain", "shop.orders", "--warehouse", warehouse)
    assert decision["policy"] == []


def test_show_and_explain_know_which_databases_exist(warehouse: Path) -> None:
    policy(warehouse, "catalog: {windows: 00:00-24:00}\n")
    for what in ("show", "explain"):
        _, said = run("policy", what, "nodb", "--warehouse", warehouse, code=3)
        assert "there is no database nodb" in said
        run("policy", what, "shop", "--warehouse", warehouse)


def test_without_a_warehouse_there_is_no_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PAIMON_WAREHOUSE", raising=False)
    run("policy", "show", code=8)
