"""`cost` says what a removal frees at once, and what it leaves for which command."""

from __future__ import annotations

import shlex
from pathlib import Path

from paimon_cli import Table
from paimon_cli.cli.results import human_size
from tests.cli.calling import Run


def test_what_a_branch_leaves_is_said_with_the_command_that_deletes_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = Table.create(path, columns=["id BIGINT NOT NULL", "v STRING"], primary_key=["id"], options={"bucket": "1"})
    table.write([{"id": number, "v": f"{number}" * 50} for number in range(200)], compact="none")
    table.branches.create("b 2", snapshot=1)
    table.write([{"id": 1, "v": "newer"}], compact="none")
    table.compact(strategy="full")
    table.expire(retain_max=1)

    (saving,) = [each for each in run("cost", path, "-o", "json").json["savings"] if each["what"] == "branch b 2"]
    now, later = saving["bytes"], saving["freed_later"]
    lines = run("cost", path).out.splitlines()
    at = next(number for number, line in enumerate(lines) if " in branch b 2; " in line)
    assert lines[at].startswith(f"{human_size(now)} in branch b 2; ")
    assert lines[at + 1] == f"  then {human_size(later)} more, {saving['later_when']}: {saving['later_command']}"
    assert saving["later_command"] == f"paimon-cli orphans rm {path} --apply"

    def size() -> int:
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())

    before = size()
    run(*shlex.split(saving["command"])[1:], "--yes")
    assert (before - size(), later > now) == (now, True)
    run(*shlex.split(saving["later_command"])[1:], "--older-than", "0 ms", "--force", "--yes")
    assert before - size() == now + later
