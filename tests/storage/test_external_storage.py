"""Places outside of a table: which paths lead below one that the user allows, and which storage takes a call."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    hostile = "/" + "/".join(["=" * 20] * 12)
    assert place_not_allowed("a file", hostile).details["external_path"] == hostile
