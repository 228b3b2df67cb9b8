"""The recipes of deploy/: manifests by Kubernetes' schemas, command lines by our own parser, snippets by what they call."""

from __future__ import annotations

import ast
import configparser
import json
import re
import shlex
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from paimon_cli.cli.app import app
from paimon_cli.jobs.service.metrics_server import listening, parse_address
from paimon_cli.jobs.service.service_metrics import ServiceMetrics
from tests.jobs.test_leases import HandClock
from tests.jobs.test_service_rounds import Rounds
from tests.tables import make_table, write

DEPLOY = Path(__file__).parents[1] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def manifest(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def pod(path: Path) -> dict[str, Any]:
    spec = manifest(path)["spec"]
    template: dict[str, Any] = (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)["template"]["spec"]
    return template


def options(words: list[str]) -> dict[str, Any]:
    """What our parser makes of a command line; it raises for options that do not exist."""
    group: Any = get_command(app)
    command = group.commands[words[0]]
    return dict(command.make_context(words[0], words[1:]).params)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_the_schemas_of_kubernetes(path: Path) -> None:
    import kubernetes_validate  # here, because it takes a second, and each worker of a run collects each test

    kubernetes_validate.validate(manifest(path), kubernetes_validate.latest_version(), strict=True)
    broken = manifest(path)
    broken["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_commands_of_manifests_are_ours(path: Path) -> None:
    (container,) = pod(path)["containers"]
    given = options(container["args"])
    assert given["engine"] == "local" and given["log_format"] == "json"
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
    assert given["watch"] == bool(ports)
    assert [f"0.0.0.0:{port}" for port in ports.values()] == [text for text in [given["metrics_listen"]] if text]


def test_the_service_unit_starts_our_service() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "systemd" / "paimon-compaction.service")
    program, name, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (program, name) == ("/usr/bin/env", "paimon-cli")
    given = options(words)
    assert given["watch"] and given["expire"] and given["metrics_listen"] == "127.0.0.1:9464"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


ROOT = DEPLOY.parent
LINE = re.compile(r"--metrics-listen[ =]((?:[\w.:\[\]]*):\d+)")
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(path for path in sorted(DEPLOY.rglob("*")) if path.is_file()),
]
PAGES += [ROOT / "paimon_cli" / "cli" / "compact_command.py"]
FOUND = [(path, address) for path in PAGES for address in LINE.findall(path.read_text())]
PROBED = ("deployment.yaml",)
"""Files whose service is asked from another machine."""


@pytest.mark.parametrize(("path", "address"), FOUND, ids=lambda value: getattr(value, "name", value))
def test_every_written_address_listens_as_it_says(path: Path, address: str) -> None:
    host, port = parse_address(address)
    assert (host == "0.0.0.0") == (path.name in PROBED or address.startswith("0.0.0.0")) and port == 9464
    clock = HandClock()
    with listening(ServiceMetrics(Rounds(clock), clock), f"{address.rpartition(':')[0]}:0") as url:
        listens_on = url.split("/")[2].rpartition(":")[0]
        assert listens_on == host
        with urllib.request.urlopen(url.replace("0.0.0.0", "127.0.0.1"), timeout=60) as answer:
            assert answer.status == 200


def test_lines_are_found() -> None:
    assert {path.name for path, _ in FOUND} >= {"README.md", "service.md", "deployment.yaml", "paimon-compaction.service"}
    assert {path.name for path, address in FOUND if address.startswith("0.0.0.0")} >= {"service.md", "deployment.yaml"}


BOARD = json.loads((DEPLOY / "grafana" / "service.json").read_text())
METRIC = re.compile(r"\bpaimon_[A-Za-z0-9_]+")


def exported() -> dict[str, set[str]]:
    """The labels of each metric of a service, by the names under which Prometheus finds them."""
    clock = HandClock()
    found: dict[str, set[str]] = {}
    for family in ServiceMetrics(Rounds(clock), clock).collect():
        labels = set(getattr(family, "_labelnames", ()))
        found[f"{family.name}_total" if family.type == "counter" else family.name] = labels
    return found


def test_each_query_of_the_board_is_about_a_metric_of_ours() -> None:
    known = exported()
    queries = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    queries += [variable["query"] for variable in BOARD["templating"]["list"] if variable["type"] == "query"]
    assert len(queries) > 15
    for query in queries:
        named = METRIC.findall(query)
        assert named and not set(named) - set(known), query
        for metric, labels in re.findall(r"(paimon_\w+){([^}]*)}", query):
            assert set(re.findall(r"(\w+)[=!]", labels)) <= known[metric], query
        for metric, label in re.findall(r"label_values\((paimon_\w+), (\w+)\)", query):
            assert label in known[metric], query
        assert all(re.search(rf"(rate|increase)\({name}\b", query) for name in named if name.endswith("_total")), query


def test_the_board_has_a_place_for_each_panel() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x + place["x"], y + place["y"]) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < 24 and not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def functions(name: str) -> dict[str, Any]:
    """The functions of a snippet that need no scheduler, ready to be called."""
    source = (DEPLOY / "schedulers" / name).read_text()
    tree = ast.parse(source)
    plain: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    found: dict[str, Any] = {}
    exec(compile(ast.Module(plain, []), name, "exec"), found)
    return found


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    keep = {"write-only": "true", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = make_table(tmp_path / "shop.db" / "orders", {"id": "INT NOT NULL"}, ["id"], options=keep)
    for number in range(3):
        write(table, [{"id": number}])
    return str(tmp_path)


def test_the_airflow_snippet_compacts_and_expires(warehouse: str, tmp_path: Path) -> None:
    found = functions("airflow_compaction.py")
    assert found["compact_database"](warehouse, "shop") == {"shop.orders": 1}
    assert found["expire_database"](warehouse, "shop") == 3
    (tmp_path / "shop.db" / "orders" / "schema" / "schema-0").write_text("{")
    with pytest.raises(Exception, match="cannot read schema file"):
        found["compact_database"](warehouse, "shop")


def test_the_dagster_snippet_gives_the_figures_of_a_compaction(warehouse: str) -> None:
    figures = functions("dagster_compaction.py")["compact_table"](warehouse, "shop.orders")
    assert (figures["buckets"], figures["files_before"], figures["files_after"]) == (1, 3, 1)
