"""Deleting files: what stands before a store learns of each of them, one that is refused keeps no other, and all are counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from paimon_cli.errors import FilesLeft, RequestRefused, StorageUnavailable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.deletions import Deletions, delete_all, delete_each, deleted_together
from paimon_cli.storage.memory_storage import MemoryStorage

FILES = [f"memory://deletions/{name}" for name in "abcdefg"]


class Plain(MemoryStorage):
    """Deletes single files; some of them are stuck."""

    def __init__(self, *stuck: str) -> None:
        super().__init__()
        self.stuck, self.gone = stuck, list[str]()

    def delete(self, path: str) -> None:
        if path in self.stuck:
            raise RequestRefused(f"{path} stays", "it is locked", path=path)
        self.gone.append(path)


class Many(Plain):
    """Also deletes many files with one request, of which none is left unless `fails`."""

    fails: Exception | None = None

    def __init__(self, *stuck: str) -> None:
        super().__init__(*stuck)
        self.requests: list[list[str]] = []

    def delete_many(self, paths: Sequence[str]) -> None:
        self.requests.append(list(paths))
        if self.fails is not None:
            raise self.fails
        self.gone += paths


class Watching(WrappedStorage):
    """Notes what it is asked for, with those inside of it."""

    def __init__(self, inner: MemoryStorage | WrappedStorage, seen: list[tuple[str, str]], name: str) -> None:
        super().__init__(inner)
        self.seen, self.name = seen, name

    def before(self, call: str, path: str) -> None:
        assert call == "delete"
        self.seen.append((self.name, path))


class Keeping(WrappedStorage):
    """Deletes nothing, as a storage that notes deletions for later."""

    def delete(self, path: str) -> None:
        return


def test_whatever_surrounds_a_store_learns_of_each_file_that_goes() -> None:
    store, seen = Many(), list[tuple[str, str]]()
    assert deleted_together(Watching(Watching(store, seen, "inner"), seen, "outer"), FILES)
    assert sorted(seen) == sorted((name, path) for name in ("inner", "outer") for path in FILES)
    assert store.requests == [FILES]


def test_a_storage_that_deletes_in_its_own_way_is_not_passed_over() -> None:
    store = Many()
    for storage in (Keeping(store), Watching(Keeping(store), [], "outer")):
        assert not deleted_together(storage, FILES)
        delete_all(storage, FILES)
    assert (store.requests, store.gone) == ([], [])


@pytest.mark.parametrize("error", [StorageUnavailable("no answer"), FileNotFoundError("gone")])
def test_after_a_failed_request_each_file_is_deleted_by_itself(error: Exception) -> None:
    store = Many(FILES[1])
    store.fails = error
    assert not deleted_together(store, FILES)
    with pytest.raises(FilesLeft, match="6 files deleted, 1 refused") as left:
        delete_all(store, FILES)
    assert store.gone == [path for path in FILES if path != FILES[1]] and left.value.details["path"] == FILES[1]


def test_every_portion_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "deleted_files", 3)
    store = Many(FILES[6])
    with pytest.raises(FilesLeft, match="6 files deleted, 1 refused"):
        delete_all(store, iter(FILES))
    assert store.requests == [FILES[:3], FILES[3:6]] and store.gone == FILES[:6]


def test_files_whose_order_counts_are_deleted_in_it() -> None:
    store = Many()
    delete_all(store, iter(FILES), in_order=True)
    assert (store.requests, store.gone) == ([], FILES)


@pytest.mark.parametrize("threads", [1, 3])
def test_each_file_but_those_that_are_refused(threads: int) -> None:
    store, told = Plain(FILES[0], FILES[3]), list[int]()
    done = delete_each(store, FILES, threads, told.append)
    assert sorted(store.gone) == [FILES[1], FILES[2], *FILES[4:]]
    assert (done.deleted, done.refused, len(told)) == (5, 2, 5) and done.first is not None
    assert done.first.details["path"] == FILES[0]


def test_an_error_that_is_no_refusal_ends_the_deletion() -> None:
    class Down(Plain):
        def delete(self, path: str) -> None:
            if path == FILES[2]:
                raise StorageUnavailable("no answer")
            super().delete(path)

    store = Down()
    with pytest.raises(StorageUnavailable, match="no answer"):
        delete_each(store, FILES)
    assert store.gone == FILES[:2]


def test_groups_of_files_are_summed_up_with_the_first_refusal() -> None:
    def of(stuck: Sequence[str], *paths: str) -> Callable[[], int]:
        return lambda: delete_each(Plain(*stuck), paths).check()

    done = Deletions()
    done.run(of(FILES[:2], *FILES[:4]))
    done.run(of([], *FILES[:3]))
    done.run(of(FILES[4:5], *FILES[4:]))
    assert (done.deleted, done.refused) == (2 + 3 + 2, 2 + 0 + 1)
    with pytest.raises(FilesLeft, match="7 files deleted, 3 refused") as left:
        done.check("later")
    assert (left.value.deleted, left.value.refused, left.value.hint) == (7, 3, "later")
    assert left.value.details["path"] == FILES[0] and "memory://deletions/a stays" in left.value.why
