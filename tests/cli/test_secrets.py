"""No secret is in what a command prints, whatever it contains and wherever it was given."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.calling import Run
from tests.storage.test_redaction import ADDRESSES, PASSWORDS, assert_hidden

KEYS = ("header.Cookie", "header.Authorization", "jdbc.password", "s3.secret-key", "token")
COMMANDS = [
    ("config", "show"),
    ("config", "show", "-o", "json"),
    ("db", "ls", "--trace"),
    ("db", "ls", "-o", "json", "--trace"),
    ("drop", "shop.orders"),
    ("compact", "shop.orders", "--print-spark-submit"),
    ("ls", "--nonsense"),
]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    PASSWORDS,
    st.sampled_from(ADDRESSES),
    st.sampled_from(KEYS),
    st.sampled_from(COMMANDS),
    st.sampled_from(["jdbc", "hive", "filesystem"]),
)
def test_no_output_of_a_command_has_a_secret(
    run: Run, password: str, form: str, key: str, command: tuple[str, ...], kind: str
) -> None:
    options = {"metastore": kind, "uri": form.format(password), key: password, "jdbc.user": "u"}
    words = (*command, "--warehouse", f"s3://u:{password}@bucket/wh") if command[0] == "config" else command
    answer = run(*words, *(word for pair in options.items() for word in ("--option", "=".join(pair))), code=None)
    assert_hidden(password, answer.out, answer.err)


def test_a_command_to_repeat_has_no_secret(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"id": 1}\n')
    table = str(tmp_path / "t")
    run("create", table, "-C", "id INT")
    run("write", table, str(tmp_path / "rows.json"))
    answer = run("truncate", table, "--dry-run", "--option", "s3.secret-key=HUN@TER2")
    assert "run: paimon-cli truncate" in answer.out
    assert not {"HUN", "TER2"} & set(shlex.split(answer.out.replace("=", " ").replace("@", " ")))


def test_an_unreadable_configuration_is_not_quoted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("s3.secret-key: *HUNTER2", "s3.secret-key: !HUNTER2 x", "s3.secret-key: [HUNTER2", "s3.secret-key: @HUNTER2"):
        Path("paimon.yaml").write_text(f"metastore: filesystem\n{text}\n")
        answer = run("config", "show", "--trace", code=2)
        assert "HUNTER2" not in answer.err and "not YAML" in answer.err and "line " in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("s3://k:HUNTER2@bucket/t",),
        ("t", "--warehouse", "s3://k:HUNTER2@bucket/wh"),
        ("t", "--option", "uri=jdbc:postgresql://u:HUNTER2@h/db"),
        ("t", "--option", "header.Cookie=HUNTER2"),
        ("t", "--spark-conf", "spark.hadoop.fs.s3a.secret.key=HUNTER2"),
    ],
)
def test_a_line_for_spark_submit_never_has_a_secret(run: Run, words: tuple[str, ...]) -> None:
    answer = run("compact", *words, "--master", "yarn", "--print-spark-submit", code=2)
    assert "would print" in answer.err and "HUNTER2" not in answer.out + answer.err


def test_json_errors_stay_json(run: Run) -> None:
    answer = run("files", "ls", "/nowhere/http://u:HUNTER2@h/x?y", "-o", "json", code=2)
    assert "HUNTER2" not in answer.err and json.loads(answer.err)["error"]["code"]
