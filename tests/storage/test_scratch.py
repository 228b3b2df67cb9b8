"""Temporary directories go with their process, or with the next one."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_cli.errors import NotSupported
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.whole_file import IN_USE, ScratchDirectory, ScratchStorage

HOLDER = """
import sys
from paimon_cli.storage.whole_file import ScratchDirectory
held = ScratchDirectory("held", sys.argv[1])
(held.path / "deep").mkdir()
(held.path / "deep" / "file").write_text("x")
print(held.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds one directory below `tmp_path`; it ends when its input does."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == str(next(tmp_path.iterdir()))
        yield process
        process.kill()


def test_a_directory_is_removed_at_the_end_of_its_block(tmp_path: Path) -> None:
    with ScratchDirectory("trial", str(tmp_path)) as directory:
        assert directory.parent == tmp_path and directory.name.startswith("paimon-cli-trial-")
        (directory / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_removing_twice_is_harmless(tmp_path: Path) -> None:
    directory = ScratchDirectory("trial", str(tmp_path))
    directory.remove()
    directory.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_a_living_process_stays(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with ScratchDirectory("trial", str(tmp_path)):
        assert len(list(tmp_path.iterdir())) == 2
    assert [path.name.split("-")[2] for path in tmp_path.iterdir()] == ["held"]


def test_the_directory_of_a_process_that_ends_is_removed(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.communicate()
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert len(list(tmp_path.iterdir())) == 1
    with ScratchDirectory("trial", str(tmp_path)) as directory:
        assert list(tmp_path.iterdir()) == [directory]


def test_a_fork_removes_nothing(tmp_path: Path) -> None:
    scratch = ScratchDirectory("trial", str(tmp_path))
    with scratch as directory:
        child = os.fork()
        if not child:
            scratch.remove()
            os._exit(0)
        os.waitpid(child, 0)
        assert directory.exists()


def test_directories_without_a_lock_and_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paimon-cli-without").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / IN_USE).touch()
    (tmp_path / "paimon-cli-link").symlink_to(elsewhere)
    (tmp_path / "paimon-cli-linked-lock").mkdir()
    (tmp_path / "paimon-cli-linked-lock" / IN_USE).symlink_to(elsewhere / IN_USE)
    (tmp_path / "paimon-cli-pipe").mkdir()
    os.mkfifo(tmp_path / "paimon-cli-pipe" / "file")
    before = sorted(tmp_path.rglob("*"))
    ScratchDirectory("trial", str(tmp_path)).remove()
    assert sorted(tmp_path.rglob("*")) == before

    (tmp_path / "paimon-cli-without" / IN_USE).touch()
    monkeypatch.setattr("os.getuid", lambda: os.geteuid() + 1)
    ScratchDirectory("trial", str(tmp_path)).remove()
    assert (tmp_path / "paimon-cli-without").exists()
    monkeypatch.undo()
    ScratchDirectory("trial", str(tmp_path)).remove()
    assert not (tmp_path / "paimon-cli-without").exists()


def test_without_locks_no_other_job_removes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(37, "no locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with ScratchDirectory("first", str(tmp_path)) as first:
        monkeypatch.undo()
        ScratchDirectory("second", str(tmp_path)).remove()
        assert first.exists() and list(first.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_new_files_lie_in_the_scratch_directory_and_old_ones_where_they_were(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    scratch = ScratchDirectory("test")
    directory, storage = scratch.path, ScratchStorage(LocalStorage(), scratch)
    with storage.open_output(f"{tmp_path}/bucket-0/new") as sink:
        sink.write(b"new")
    storage.write_new(f"{tmp_path}/other", b"other")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    copy = pickle.loads(pickle.dumps(storage))
    for one in (storage, copy):
        assert (one.read_bytes(f"{tmp_path}/bucket-0/new"), one.read_bytes(f"{tmp_path}/old")) == (b"new", b"old")
        assert one.file_size(f"{tmp_path}/other") == 5 and one.exists(f"{tmp_path}/other")
        assert not one.exists(f"{tmp_path}/nothing")
    storage.delete(f"{tmp_path}/old")
    storage.delete(f"{tmp_path}/other")
    assert (tmp_path / "old").exists() and not storage.exists(f"{tmp_path}/other")
    del scratch, storage
    assert not directory.exists()
    with pytest.raises(NotSupported, match="on another machine"):
        copy.read_bytes(f"{tmp_path}/bucket-0/new")


@pytest.mark.parametrize("step", ["mkdir", "rename"])
def test_an_interrupt_while_it_is_made_leaves_nothing(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = getattr(Path, step)

    def interrupted(*arguments: object) -> None:
        done(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        ScratchDirectory("trial", str(tmp_path))
    gc.collect()
    assert list(tmp_path.iterdir()) == []
