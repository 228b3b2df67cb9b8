"""Where each value of the configuration comes from, and which one counts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from paimon_cli.catalog.metastore.configuration_files import user_file_of
from paimon_cli.catalog.metastore.settings import catalog_setting, find_metastore, read_settings, split_profile
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.installation import install_command
from tests.cli.calling import Run

FILE = """
metastore: filesystem
warehouse: /file
s3.endpoint: http://file
s3.secret-key: hunter2
engine.spark-threshold: 2 gb
profiles:
  prod:
    warehouse: /prod
    s3.endpoint: http://prod
  empty:
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "paimon.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PAIMON_WAREHOUSE", raising=False)
    monkeypatch.delenv("PAIMON_PROFILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return str(tmp_path)


def warehouse(**environment: str) -> tuple[str | None, str]:
    found = read_settings(environment={key: value for key, value in environment.items() if value})
    return found.warehouse, found.sources["warehouse"][0]


def test_a_profile_goes_before_the_rest_of_the_file(directory: str) -> None:
    assert warehouse() == ("/file", "file")
    assert warehouse(PAIMON_PROFILE="prod") == ("/prod", "profile")
    assert warehouse(PAIMON_PROFILE="empty") == ("/file", "file")
    found = read_settings(environment={"PAIMON_PROFILE": "prod"})
    assert found.catalog_options == {"metastore": "filesystem", "s3.endpoint": "http://prod", "s3.secret-key": "hunter2"}


def test_the_environment_overrides_a_profile_unless_the_call_names_it(directory: str) -> None:
    assert warehouse(PAIMON_PROFILE="prod", PAIMON_WAREHOUSE="/env") == ("/env", "environment")
    environment = {"PAIMON_WAREHOUSE": "/env", "PAIMON_PROFILE": "empty"}
    assert read_settings(options={"profile": "prod"}, environment=environment).warehouse == "/prod"
    assert read_settings("/flag", {"profile": "prod"}, environment).warehouse == "/flag"
    assert read_settings(options={"s3.endpoint": "http://flag", "profile": "prod"}).values["s3.endpoint"] == "http://flag"


def test_the_file_may_choose_its_profile(directory: str) -> None:
    Path("paimon.yaml").write_text(f"profile: prod\n{FILE}")
    assert warehouse() == ("/prod", "profile")
    assert warehouse(PAIMON_PROFILE="empty") == ("/file", "file")


def test_settings_of_paimon_cli_may_be_in_a_profile(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert catalog_setting("engine.spark-threshold") == "2 gb"
    Path("paimon.yaml").write_text(f"{FILE}    engine.spark-threshold: 3 gb\n")
    Path("paimon.yaml").write_text(Path("paimon.yaml").read_text().replace("empty:", "small:"))
    monkeypatch.setenv("PAIMON_PROFILE", "small")
    assert catalog_setting("engine.spark-threshold") == "3 gb"
    assert catalog_setting("engine.spark-threshold", "prod") == "2 gb"


@pytest.mark.parametrize(
    ("content", "message"),
    [("profiles: [a]", "not a mapping"), ("profiles:\n  a: 7", "profiles.a"), ("profiles:\n  a:\n    b: {c: 1}", "profiles.a")],
)
def test_profiles_that_are_not_flat_mappings(directory: str, content: str, message: str) -> None:
    Path("paimon.yaml").write_text(content)
    with pytest.raises(UsageError, match=message):
        read_settings()


def test_an_unknown_profile_is_refused(directory: str) -> None:
    with pytest.raises(UsageError, match="there is no profile 'test'") as failure:
        read_settings(environment={"PAIMON_PROFILE": "test"})
    assert failure.value.why.endswith("has the profiles empty, prod")


def test_an_unknown_kind_is_reported_with_its_source(directory: str) -> None:
    with pytest.raises(NotSupported, match="glue") as failure:
        find_metastore(options={"metastore": "glue"})
    assert failure.value.why.startswith("metastore=glue (--option) is none of")


def test_a_kind_whose_package_is_missing_names_it(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.delitem(sys.modules, "paimon_cli.catalog.metastore.jdbc", raising=False)
    with pytest.raises(UsageError, match="a jdbc catalog needs SQLAlchemy") as missing:
        find_metastore(options={"metastore": "jdbc"}, directory=directory)
    assert missing.value.hint == install_command("jdbc")


def test_config_show_prints_origins_and_no_secret(directory: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_PROFILE", "prod")
    answer = run("config", "show", "--option", "uri=postgresql://me:hunter3@h/db?password=hunter4", "-o", "json")
    items = {item["key"]: (item["value"], item["origin"], item["source"]) for item in answer.json["items"]}
    assert items == {
        "engine.spark-threshold": ("2 gb", "file", "paimon.yaml"),
        "metastore": ("filesystem", "file", "paimon.yaml"),
        "profile": ("prod", "environment", "PAIMON_PROFILE"),
        "s3.endpoint": ("http://prod", "profile", "paimon.yaml, profiles.prod"),
        "s3.secret-key": ("***", "file", "paimon.yaml"),
        "uri": ("postgresql://h/db", "flag", "--option"),
        "warehouse": ("/prod", "profile", "paimon.yaml, profiles.prod"),
    }
    named = run("config", "show", "--option", "token.provider=bear", "--option", "token=hunter5", "-o", "json").json["items"]
    assert {item["key"]: item["value"] for item in named}.items() >= {"token.provider": "bear", "token": "***"}.items()
    assert "hunter" not in answer.out + answer.err + run("config", "show").out
    Path("paimon.yaml").unlink()
    monkeypatch.delenv("PAIMON_PROFILE")
    (item,) = run("config", "show", "-o", "json").json["items"]
    assert item == {"key": "metastore", "value": "filesystem", "origin": "default", "source": None}


def test_flags_of_the_catalog_are_in_hints(directory: str, run: Run) -> None:
    os.mkdir("x y")
    answer = run("tables", "rename", "a.b", "a.c", "--profile", "prod", "--warehouse", "x y", code=3)
    assert "hint: paimon-cli db ls --warehouse 'x y' --profile prod" in answer.err


HOSTS = "http-report.allowed-hosts"


def own_file(directory: str, text: str) -> Path:
    path = Path(directory) / "config" / "paimon-cli" / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_only_the_user_permits_something(directory: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own_file(directory, f"{HOSTS}: reports.example.com, 10.0.0.7:8080\nengine.spark-threshold: 9 gb\n")
    found = read_settings()
    assert found.sources[HOSTS] == ("user", str(path)) and HOSTS not in found.catalog_options
    assert found.values["engine.spark-threshold"] == "2 gb", "./paimon.yaml goes before the user's own file"
    assert find_metastore().report_hosts.entries == {("reports.example.com", None), ("10.0.0.7", 8080)}
    assert read_settings(options={HOSTS: "h"}).sources[HOSTS] == ("flag", "--option")
    answer = run("config", "show")
    assert "10.0.0.7:8080" in answer.out and str(path) in answer.out
    other = Path(directory) / "other.yaml"
    monkeypatch.setenv("PAIMON_CLI_CONFIG", str(other))
    assert "there is no file" in run("config", "show", code=2).err
    other.write_text(f"{HOSTS}: h\n")
    assert read_settings().values[HOSTS] == "h"


@pytest.mark.parametrize("content", [f"{HOSTS}: evil.example.com\n", f"profiles:\n  p:\n    {HOSTS}: evil.example.com\n"])
def test_the_file_of_a_checkout_permits_nothing(directory: str, run: Run, content: str) -> None:
    Path("paimon.yaml").write_text(content)
    answer = run("config", "show", code=2)
    assert f"'{HOSTS}' is not taken from" in answer.err and "config/paimon-cli/config.yaml" in answer.err


OWN = """
warehouse: /own
s3.region: eu-central-1
s3.access-key: id
s3.secret-key: hunter9
profiles:
  prod:
    warehouse: s3://prod/wh
    s3.endpoint: http://own
    token: hunter8
  home:
    warehouse: /home
"""


def test_the_nearer_file_wins_key_by_key(directory: str, run: Run) -> None:
    path = own_file(directory, OWN)
    Path("paimon.yaml").write_text("warehouse: ./near\ntable-timeout: 2 min\n")
    found = read_settings()
    assert found.values["warehouse"] == "./near" and found.sources["warehouse"] == ("file", "paimon.yaml")
    assert found.values["s3.secret-key"] == "hunter9" and found.sources["s3.region"] == ("user", str(path))
    Path("paimon.yaml").unlink()
    assert read_settings().warehouse == "/own"
    items = {item["key"]: (item["origin"], item["source"]) for item in run("config", "show", "-o", "json").json["items"]}
    assert items["s3.secret-key"] == ("user", str(path)) and items["metastore"] == ("default", None)


def test_profiles_of_both_files_are_one(directory: str) -> None:
    path = own_file(directory, OWN)
    found = read_settings(options={"profile": "prod"})
    assert found.values["s3.endpoint"] == "http://prod" and found.warehouse == "/prod", "the nearer profile wins"
    assert found.sources["s3.region"] == ("user", str(path))
    found = read_settings(options={"profile": "home"})
    assert found.warehouse == "/home" and found.sources["warehouse"] == ("profile", f"{path}, profiles.home")
    with pytest.raises(UsageError, match="there is no profile 'hone'") as unknown:
        read_settings(options={"profile": "hone"})
    assert "did you mean 'home'?" in unknown.value.hint and str(path) in unknown.value.why


def test_the_own_file_may_choose_a_profile_below_the_nearer_file(directory: str) -> None:
    own_file(directory, f"profile: home\n{OWN}")
    assert read_settings().warehouse == "/file"
    Path("paimon.yaml").unlink()
    assert read_settings().warehouse == "/home"


def test_the_file_of_a_checkout_chooses_no_profile_of_the_own_file(directory: str) -> None:
    own_file(directory, OWN)
    Path("paimon.yaml").write_text("profile: home\n")
    with pytest.raises(UsageError, match="there is no profile 'home'"):
        read_settings()


@pytest.mark.parametrize(
    "near",
    [
        *("s3.endpoint: http://evil", "warehouse: s3://evil/wh", "metastore: rest\nuri: http://evil", "allow-plain-http: true"),
        *("profiles:\n  prod:\n    uri: http://evil", "fs.s3a.endpoint: http://evil", "header.Host: evil"),
    ],
)
def test_secrets_of_the_own_file_never_meet_addresses_of_a_checkout(directory: str, run: Run, near: str) -> None:
    own_file(directory, OWN)
    Path("paimon.yaml").write_text(f"{near}\n")
    found = read_settings(options={"profile": "prod"})
    assert "hunter" not in str(dict(found.values)) and set(found.withheld) == {"s3.access-key", "s3.secret-key", "token"}
    assert found.values["s3.region"] == "eu-central-1"
    shown = {item["key"]: item["origin"] for item in run("config", "show", "--profile", "prod", "-o", "json").json["items"]}
    assert shown["s3.secret-key"] == shown["token"] == "withheld"


def test_secrets_that_the_nearer_file_has_itself_are_its_own(directory: str) -> None:
    own_file(directory, OWN)
    found = read_settings()
    assert found.values["s3.secret-key"] == "hunter2" and "s3.access-key" not in found.values
    assert found.withheld == ("s3.access-key",)


def test_a_table_may_name_its_profile(directory: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    own_file(directory, f"profiles:\n  mine:\n    warehouse: {directory}/wh\n  other: {{}}\n")
    Path("paimon.yaml").unlink()
    Path("rows.csv").write_text("id\n1\n")
    run("db", "create", "shop", "--profile", "mine")
    assert "created" in run("create", "@mine/shop.orders", "-C", "id INT").out
    run("write", "@mine/shop.orders", "rows.csv")
    assert run("read", "@mine/shop.orders", "--count").out.strip() == "1"
    assert Path("wh/shop.db/orders/schema").is_dir()
    assert "shop.orders" in run("ls", "@mine").out and "shop.orders" in run("tables", "ls", "@mine/shop").out
    run("tables", "rename", "@mine/shop.orders", "@mine/shop.sales")
    run("tables", "clone", "@mine/shop.sales", "@mine/shop.copy")
    assert run("compare", "@mine/shop.sales", "@mine/shop.copy").code == 0
    assert run("write", "@mine/shop.copy", "--from-table", "@mine/shop.sales").code == 0
    hint = run("snapshots", "show", "@mine/shop.sales", "9", code=3).err
    assert "paimon-cli snapshots ls @mine/shop.sales" in hint
    assert "there is no profile 'mime'" in run("read", "@mime/shop.sales", code=2).err
    assert "different profiles" in run("read", "@mine/shop.sales", "--profile", "other", code=2).err
    assert "names no table" in run("read", "@mine", code=2).err
    assert "another profile" in run("tables", "rename", "@mine/shop.sales", "@other/shop.x", code=2).err


def test_a_directory_may_begin_with_the_same_sign(directory: str, run: Run) -> None:
    own_file(directory, "profiles:\n  mine: {}\n")
    run("create", "./@lab/t", "-C", "id INT")
    assert run("read", "@lab/t", "--count").out.strip() == "0"
    run("create", "./@mine/t", "-C", "id INT")
    assert split_profile("@mine/t") == ("mine", "t") and split_profile("./@mine/t") == (None, "./@mine/t")


def test_a_relative_directory_of_the_environment_is_ignored(directory: str) -> None:
    assert user_file_of({"XDG_CONFIG_HOME": "here"}) == os.path.expanduser("~/.config/paimon-cli/config.yaml")


def test_a_permission_is_not_stored_in_a_table(directory: str, run: Run) -> None:
    Path("paimon.yaml").unlink()
    answer = run("create", "t", "-C", "id INT", "--option", "write-only=true")
    assert answer.code == 0
    assert "is not stored in a table" in run("alter", "t", "set", f"{HOSTS}=h", code=2).err


def test_a_file_that_is_nested_too_deeply_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "paimon.yaml").write_text("[" * 100_000)
    with pytest.raises(UsageError, match="nested too deeply"):
        read_settings(environment={}, directory=str(tmp_path))
