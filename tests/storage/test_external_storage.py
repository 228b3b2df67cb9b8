"""Places outside of a table: which paths lead below one that the user allows, and which storage takes a call."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import Refused, UsageError
from paimon_cli.storage.capabilities import WrappedStorage, keep_deleted, overlapping_writes
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.external_storage import AllowedPlaces, ExternalStorage, external_path, location_of, place_not_allowed
from paimon_cli.storage.guarded_storage import GuardedStorage
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.storage import PutOutcome, Storage
from paimon_cli.storage.storage_for_url import storage_for_url


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("/a/b/", "/a/b"),
        ("file:/a", "/a"),
        ("file:///a", "/a"),
        ("s3://b/x y", "s3://b/x y"),
        ("s3://b", "s3://b"),
        ("file:///a%2F", "/a%2F"),
        ("a/b", None),
        ("/", None),
        ("", None),
        ("/a/../b", None),
        ("/a/..", None),
        ("s3://b/..", None),
        ("/a/.", None),
        ("/a/./b", None),
        ("/a//b", None),
        ("file://host/a", None),
        ("s3://b/../c", None),
        ("/a\\b", None),
        ("/a\0", None),
        ("s3:///x", None),
    ],
)
def test_plain_locations(text: str, location: str | None) -> None:
    assert location_of(text) == location


@pytest.mark.parametrize("text", ["relative", "/", "/a,..", "s3://"])
def test_places_are_absolute(text: str) -> None:
    with pytest.raises(UsageError, match="is no place"):
        AllowedPlaces.parse(text)


def opened(tmp_path: Path, allowed: str) -> tuple[Storage, str]:
    return storage_for_url(str(tmp_path / "t"), confined=True, external=AllowedPlaces.parse(allowed))


def test_only_what_is_below_a_place_is_found(tmp_path: Path) -> None:
    storage, _ = opened(tmp_path, f"{tmp_path}/cold , s3a://bucket/tier")
    guarded = GuardedStorage(storage, str(tmp_path))
    assert external_path(guarded, f"file://{tmp_path}/cold/bucket-0/f") == f"{tmp_path}/cold/bucket-0/f"
    assert external_path(storage, "s3://bucket/tier/f") == "s3a://bucket/tier/f", "one store under two schemes"
    refused = (
        f"{tmp_path}/colder/f",
        f"{tmp_path}/f",
        f"{tmp_path}/cold/../f",
        "s3://bucket/tiers/f",
        "gs://bucket/tier/f",
        "cold/f",
    )
    for path in refused:
        assert external_path(storage, path) is None, path
    assert external_path(ConfinedStorage(str(tmp_path)), f"{tmp_path}/cold/f") is None, "nothing is allowed"


class Recording(WrappedStorage):
    """Remembers which paths it was asked for."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage())
        self.asked: set[str] = set()

    def before(self, call: str, path: str) -> None:
        self.asked.add(path)


def test_calls_reach_the_storage_of_the_place(tmp_path: Path) -> None:
    stores = {"/all": Recording(), "/cold": Recording()}
    inner = Recording()
    storage = ExternalStorage(inner, "/all/t", AllowedPlaces(("/all", "/cold")), stores.__getitem__)
    storage.write_new("/all/t/own", b"1")
    storage.write_new("/all/elsewhere", b"2")
    with overlapping_writes(storage), storage.open_output("/cold/x/f") as sink:
        sink.write(b"three")
    assert storage.read_bytes("/all/elsewhere") == b"2" and storage.read_bytes("/cold/x/f") == b"three"
    assert storage.open_sized("/cold/x/f", 5).read() == b"three" and storage.file_size("/cold/x/f") == 5
    assert [entry.name for entry in storage.list_directory("/cold/x")] == ["f"]
    assert storage.put_if_absent("/all/t/s", b"") is PutOutcome.CREATED
    delete_all(storage, ["/all/t/own", "/cold/x/f", "/all/elsewhere"])
    assert not any(storage.exists(path) for path in ("/all/t/own", "/cold/x/f", "/all/elsewhere"))
    assert inner.asked == {"/all/t/own", "/all/t/s"}, "its own files stay with its own storage"
    assert stores["/all"].asked == {"/all/elsewhere"} and stores["/cold"].asked == {"/cold/x/f", "/cold/x"}


def test_a_place_is_not_taken_for_one_whose_name_begins_like_it() -> None:
    """Each has its own options: those of `/cold` might not open `/colder`, or lead elsewhere."""
    for allowed in (("/cold", "/colder"), ("/colder", "/cold")):
        stores = {"/cold": Recording(), "/colder": Recording()}
        storage = ExternalStorage(Recording(), "/t", AllowedPlaces(allowed), stores.__getitem__)
        for place in allowed:
            storage.overwrite(f"{place}/f", place.encode())
        assert {place: store.asked for place, store in stores.items()} == {place: {f"{place}/f"} for place in allowed}


class Syncing(Recording):
    """Remembers which directories were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)


def test_deletions_at_a_place_are_made_durable_there() -> None:
    stores, inner = {"/cold": Syncing(), "/unused": Syncing()}, Syncing()
    storage = ExternalStorage(inner, "/t", AllowedPlaces(tuple(stores)), stores.__getitem__)
    keep_deleted(storage, "/cold/bucket-0")
    keep_deleted(storage, "/t/snapshot")
    assert inner.synced == ["/t/snapshot"] and stores["/cold"].synced == ["/cold/bucket-0"] and not stores["/unused"].synced


class Storing(Recording):
    """Stores files in the background, until it is asked to settle. Remembers in `events` what was settled and published."""

    def __init__(self, name: str, events: list[str]) -> None:
        super().__init__()
        self.name, self.events = name, events

    @contextmanager
    def overlapping_writes(self) -> Iterator[None]:
        yield

    def settle(self) -> None:
        self.events.append(self.name)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.events.append("published")
        return super().put_if_absent(path, data)


def test_all_places_are_settled_before_a_publication() -> None:
    """What the snapshot names lies in several of them."""
    events: list[str] = []
    stores = {place: Storing(place, events) for place in ("/hot", "/cold", "/unused")}
    storage = ExternalStorage(Storing("own", events), "/t", AllowedPlaces(tuple(stores)), stores.__getitem__)
    for place in ("/hot", "/cold"):
        storage.write_new(f"{place}/t/bucket-0/f", b"")
    storage.put_if_absent("/t/snapshot/snapshot-1", b"")
    assert sorted(events[:-1]) == ["/cold", "/hot", "own"] and events[-1] == "published"


def test_no_link_leads_out_of_a_place(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/f").write_text("secret")
    (tmp_path / "cold/bucket-0").symlink_to(tmp_path / "secret")
    storage = pickle.loads(pickle.dumps(opened(tmp_path, f"{tmp_path}/cold")[0]))
    path = external_path(storage, f"{tmp_path}/cold/bucket-0/f")
    assert path is not None
    for call in (storage.open_input, storage.read_bytes, storage.delete, lambda at: storage.write_new(f"{at}2", b"")):
        with pytest.raises(Refused, match=r"lies outside of .*/cold: a symbolic link leads to .*/secret, and your") as refused:
            call(path)
        assert refused.value.exit_code == 7
    assert (tmp_path / "secret/f").read_text() == "secret" and len(list((tmp_path / "secret").iterdir())) == 1


def test_the_refusal_of_a_hostile_path_takes_no_time() -> None:
    shown = place_not_allowed("a file", "/cold/k=v/n=1/bucket-0/f.parquet")
    assert "`external-paths.allowed: /cold`" in str(shown.hint)
    for hostile in ("/" + "/".join(["=" * 20] * 12), "/b" + "/a=b" * 50_000 + "/f", "/b" + "/a=b" * 50_000 + "/bucket-0/f"):
        assert place_not_allowed("a file", hostile).details["external_path"] == hostile


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/data/bucket-store/x/dt=1/bucket-0/f", "/data/bucket-store/x"),
        ("/data/bucket-store/bucket-postpone/f", "/data/bucket-store"),
        ("/data/bucket-1/bucket-2/f", "/data/bucket-1"),
        ("s3://b/w/a=1/b=2/bucket--2/f", "s3://b/w"),
        ("/data/bucket-store/x", "/data/bucket-store/x"),
        ("s3://b/w", "s3://b/w"),
    ],
)
def test_the_hint_of_a_refusal_allows_no_wider_place(path: str, place: str) -> None:
    assert f"allowed: {place}`" in place_not_allowed("a file", path).hint


def test_refusals_show_no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = place_not_allowed("a file", "sftp://me:pa55word@h/w/bucket-0/f")
    assert "pa55word" not in f"{refused} {refused.hint} {refused.details}"
    with pytest.raises(UsageError) as raised:
        AllowedPlaces.parse("/a, sftp://me:pa55word@h/../x")
    assert "pa55word" not in str(raised.value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert AllowedPlaces.parse(" /a , ~/b,, s3://c/ ").places == ("/a", f"{tmp_path}/b", "s3://c")


class Busy(Recording):
    """Remembers which calls of several files it was given, and whether its writes overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.foretold: list[tuple[str, int]] = []
        self.deleted: list[str] = []
        self.overlaps = False

    @contextmanager
    def overlapping_writes(self) -> Iterator[None]:
        self.overlaps = True
        yield
        self.overlaps = False

    def settle(self) -> None: ...

    def will_open(self, files: Any) -> None:
        self.foretold += files() if callable(files) else files

    def delete(self, path: str) -> None:
        time.sleep(0.02 * path.endswith("b"))  # a later one would be faster
        self.deleted.append(path)


def test_each_storage_is_given_its_own_of_several_files() -> None:
    own, hot, cold = Busy(), Busy(), Busy()
    stores = {"/t-cold": cold, "/hot": hot}
    storage = ExternalStorage(own, "/t", AllowedPlaces(tuple(stores)), stores.__getitem__)
    of = {own: "/t/a /t/b", hot: "/hot/a /hot/b", cold: "/t-cold/a /t-cold/b"}
    files = [path for pair in zip(*(paths.split() for paths in of.values()), strict=True) for path in pair]
    storage.will_open([(path, len(path)) for path in files])
    storage.delete_many(files[::-1])
    for store, paths in of.items():
        assert store.foretold == [(path, len(path)) for path in paths.split()]
        assert store.deleted == paths.split()[::-1], "in the order that was given"
    with overlapping_writes(storage):
        assert own.overlaps and hot.overlaps and cold.overlaps
    assert [store.overlaps for store in of] == [False] * 3
