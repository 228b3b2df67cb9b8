"""Where each value of the configuration comes from, and which one counts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from paimon_cli.catalog.metastore.settings import catalog_setting, find_metastore, read_settings, user_file_of
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


@pytest.mark.parametrize(
    "content", ["token: hunter2\n", "warehouse: /wh\n", "profiles:\n  p:\n    engine.spark-threshold: 1 gb\n"]
)
def test_the_own_file_holds_nothing_of_a_catalog(directory: str, run: Run, content: str) -> None:
    own_file(directory, content)
    answer = run("config", "show", code=2)
    assert "does not belong into" in answer.err and "hunter2" not in answer.err


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
