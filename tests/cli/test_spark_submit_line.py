"""`--print-spark-submit`: the words of the line, and where each comes from. `tests/jobs/test_spark_submit` runs such lines."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.calling import Run


def test_a_line_for_yarn_sends_everything(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PAIMON_WAREHOUSE", "hdfs://nn/w")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paimon.yaml").write_text("s3.secret-key: hush\n")
    confs = ("--spark-conf", "spark.executor.memory=2g", "--spark-conf=spark.executor.cores=2")
    job = ("compact", "shop.orders", "--strategy=full", "--partition", "a=1")
    words = shlex.split(run(*job, "--master", "yarn", *confs, "--engine", "auto", "--print-spark-submit").out)
    (archive,) = (tmp_path / "paimon-cli").glob("paimon_cli-*.zip")
    entry = words.index(next(word for word in words if word.endswith("run_paimon_cli.py")))
    assert Path(words[entry]).is_file()
    assert words[:3] == ["spark-submit", "--master", "yarn"]
    options = dict(zip(words[1:entry:2], words[2:entry:2], strict=True))
    assert options["--deploy-mode"] == "cluster"
    assert options["--archives"] == "environment.tar.gz#environment"
    assert options["--py-files"] == str(archive)
    assert options["--files"] == "paimon.yaml"
    assert {"spark.pyspark.python=./environment/bin/python", "spark.executor.memory=2g", "spark.executor.cores=2"} <= set(words)
    own = [
        "compact",
        "shop.orders",
        "--strategy",
        "full",
        "--partition",
        "a=1",
        "--engine",
        "spark",
        "--warehouse",
        "hdfs://nn/w",
    ]
    assert words[entry + 1 :] == own


def test_settings_of_the_user_come_first(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = {
        "spark.pyspark.python": "/usr/bin/python3",
        "spark.archives": "s3a://b/e.tgz#e",
        "spark.app.name": "nightly",
        "spark.submit.deployMode": "client",
    }
    confs = [word for pair in settings.items() for word in ("--spark-conf", "=".join(pair))]
    command = ("verify", "s3://b/t", "--level", "full", "--master", "k8s://https://h:6443", "--print-spark-submit", "-o", "json")
    words = run(*command, *confs).json["item"]["command"]
    assert [words[words.index(flag) + 1] for flag in ("--archives", "--name", "--deploy-mode")] == [
        "s3a://b/e.tgz#e",
        "nightly",
        "client",
    ]
    assert [word for word in words if word.startswith("spark.pyspark.python=")] == ["spark.pyspark.python=/usr/bin/python3"]


def test_arguments_that_look_like_options_stay_arguments(run: Run) -> None:
    line = run("write", "t", "-o", "table", "--print-spark-submit", "--no-header", "--commit-id", "7", "--", "-in.csv").out
    assert line.strip().endswith("write --output table --no-header --commit-id 7 --engine spark -- t -in.csv")


@pytest.mark.parametrize("option", [("--engine", "local"), ("--remote", "sc://localhost:15002")])
def test_what_runs_without_spark_submit_has_no_line(run: Run, option: tuple[str, str]) -> None:
    answer = run("compact", "t", "--print-spark-submit", *option, code=2)
    assert f"--print-spark-submit cannot be combined with {option[0]}" in answer.err


@pytest.mark.parametrize("option", ["--option=s3.secret-key=hush", "--spark-conf=spark.hadoop.fs.s3a.secret.key=hush"])
def test_secrets_are_not_printed(run: Run, option: str) -> None:
    answer = run("compact", "t", "--master", "yarn", "--print-spark-submit", option, code=2)
    assert "hush" not in answer.out + answer.err
    assert "would print the value of" in answer.err


def test_a_read_has_a_line_only_with_an_output_path(run: Run) -> None:
    answer = run("read", "t", "--master", "yarn", "--print-spark-submit", "--output", "rows.csv", code=2)
    assert "--print-spark-submit needs --output-path" in answer.err
    line = run("read", "t", "--print-spark-submit", "--output-path", "hdfs://nn/out").out
    assert line.strip().endswith("read t --output-path hdfs://nn/out --engine spark")


@pytest.mark.parametrize(
    ("master", "prefix"), [("yarn", "spark.yarn.appMasterEnv"), ("k8s://https://h", "spark.kubernetes.driverEnv")]
)
@pytest.mark.parametrize(("name", "sent"), [("config.yaml", "config.yaml"), ("paimon.yaml", "own-paimon.yaml")])
def test_a_driver_in_the_cluster_gets_the_own_configuration(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, prefix: str, name: str, sent: str
) -> None:
    own = tmp_path / "home" / name
    own.parent.mkdir()
    own.write_text("warehouse: hdfs://nn/w\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PAIMON_CLI_CONFIG", str(own))
    monkeypatch.chdir(tmp_path)
    words = shlex.split(run("compact", "shop.orders", "--master", master, "--print-spark-submit").out)
    assert words[words.index("--files") + 1] == str(own) + ("" if sent == name else f"#{sent}")
    assert f"{prefix}.PAIMON_CLI_CONFIG={sent}" in words
    here = shlex.split(run("compact", "shop.orders", "--print-spark-submit").out)
    assert "--files" not in here and not any("PAIMON_CLI_CONFIG" in word for word in here)


def test_an_option_of_two_words_is_forwarded_whole(run: Run) -> None:
    line = run("verify", "t", "--report", "junit", "a b.xml", "--print-spark-submit").out
    assert shlex.split(line)[-6:] == ["t", "--report", "junit", "a b.xml", "--engine", "spark"]
