"""Change streams into tables: equal to a plain replay, each event once."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Catalog, Table
from paimon_cli.api.ingest_run import IngestRun
from paimon_cli.api.ingest_target import IngestTarget
from paimon_cli.api.ingested_table import IngestedTable
from paimon_cli.errors import BadInput, Conflict, NotSupported, PaimonError, PartialSuccess, Refused, UsageError
from paimon_cli.pieces import PIECES
from tests.event_streams import TYPES, Row, Stream, canal, debezium, flat, maxwell, rows_of, with_schema, written
from tests.nightly import first

KEYS = ["id"]
ended = IngestRun.ended


class Killed(BaseException):
    """A process that dies."""


def expected(stream: Stream, table: str, convert: Callable[[Any], Any]) -> dict[Any, Row]:
    """The rows of a table, with null in columns that are missing."""
    rows = stream.state[table]
    return {convert(key): {name: convert(value) for name, value in row.items()} for key, row in rows.items()}


def check(path: Path, stream: Stream, convert: Callable[[Any], Any] = lambda value: value) -> None:
    for table in stream.state:
        found, wanted = rows_of(path, table), expected(stream, table, convert)
        assert found.keys() == wanted.keys()
        for key, row in wanted.items():
            assert {name: value for name, value in found[key].items() if name in row or value is not None} == row


def as_text(value: Any) -> str | None:
    return None if value is None else str(value)


FORMATS = [("debezium", debezium), ("maxwell", maxwell), ("canal", canal), ("debezium-flat", flat)]


@pytest.mark.parametrize("name, envelope", FORMATS)
def test_tables_equal_a_replay(tmp_path: Path, name: Any, envelope: Any) -> None:
    stream = Stream(1, envelope=envelope, moves_keys=envelope is not flat).add(400)
    file = tmp_path / "events.json"
    file.write_bytes(stream.text())
    catalog = Catalog(str(tmp_path))
    catalog.ingest(str(file), format=name, into="shop", primary_key="id")
    convert = as_text if name != "canal" else lambda value: value
    check(tmp_path, stream, convert)
    again = catalog.ingest(str(file), format=name, into="shop", primary_key="id")
    assert not any(table.snapshots for table in again)


def test_types_come_from_the_schema_part(tmp_path: Path) -> None:
    stream = Stream(2, is_typed=True).add(300)
    file = tmp_path / "events.json.gz"
    file.write_bytes(gzip.compress(stream.text()))
    done = Catalog(str(tmp_path)).ingest(str(file), format="debezium", into="shop", primary_key=["id"])
    check(tmp_path, stream)
    columns = {column.partition(" ")[::2] for table in done for column in table.columns}
    assert {("id", "INT NOT NULL"), ("amount", "DECIMAL(10, 2)"), ("day", "DATE"), ("at", "TIMESTAMP(6)")} < columns
    assert any("extra BOOLEAN" in table.columns_added for table in done)


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_each_event_is_applied_once_whenever_the_process_dies(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables sum amounts up, so that an event that is applied twice, or not, shows."""
    catalog, chance = Catalog(str(tmp_path)), random.Random(seed)
    options = {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum", "bucket": "1"}
    events = [debezium(f"t{n % 3}", "c", None, {"id": n % 5, "amount": str(n)}) for n in range(300)]
    for n in range(3):
        catalog.create_table(f"shop.t{n}", columns=["id INT NOT NULL", "amount BIGINT"], primary_key="id", options=options)
    files = [written(tmp_path / f"{n}.json", *events[n * 60 : n * 60 + 60]) for n in range(5)]
    commit = IngestTarget.commit

    def dying(target: IngestTarget) -> None:
        fate = chance.random()
        if fate < 0.1:
            raise Killed
        commit(target)
        if fate > 0.9:
            raise Killed

    monkeypatch.setattr(IngestTarget, "commit", dying)
    monkeypatch.setattr("paimon_cli.api.ingest_run.HELD_SHARE", 1 << 40)  # each block is committed
    deaths = 0
    while True:
        try:
            catalog.ingest(files, format="debezium", into="shop", memory=16 * 4000)
            break
        except Killed:
            deaths += 1
    assert deaths
    for n in range(3):
        found = {key: row["amount"] for key, row in rows_of(tmp_path, f"t{n}").items()}
        wanted: dict[int, int] = {}
        for number in range(n, 300, 3):
            wanted[number % 5] = wanted.get(number % 5, 0) + number
        assert found == wanted


def test_a_killed_process_is_continued(tmp_path: Path) -> None:
    stream = Stream(5, tables=2).add(3000)
    file = tmp_path / "events.json"
    file.write_bytes(stream.text())
    command = [sys.executable, "-m", "paimon_cli", "ingest", str(file), "--format", "debezium", "--into", "shop"]
    command += ["--warehouse", str(tmp_path), "--primary-key", "id", "--memory", "100 kb"]
    snapshots = tmp_path / "shop.db/t0/snapshot"
    for wanted in (1, 4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if snapshots.is_dir() and len(list(snapshots.glob("snapshot-*"))) >= wanted:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.01)
        process.kill()
        process.wait()
    assert subprocess.run(command, check=True, stdout=subprocess.DEVNULL).returncode == 0
    check(tmp_path, stream, as_text)


def test_redelivered_events_and_growing_files(tmp_path: Path) -> None:
    stream, file = Stream(3).add(100), tmp_path / "events.json"
    catalog = Catalog(str(tmp_path))
    file.write_bytes(stream.text())
    catalog.ingest(str(file), format="debezium", into="shop", primary_key="id")
    before = len(stream.lines)
    stream.add(100)
    with file.open("ab") as grown:
        grown.write(stream.text(before - 30, before) + stream.text(before))
    catalog.ingest(str(file), format="debezium", into="shop", primary_key="id")
    check(tmp_path, stream, as_text)


def test_a_file_with_another_content_is_refused(tmp_path: Path) -> None:
    catalog, event = Catalog(str(tmp_path)), [debezium("t", "c", None, {"id": n}) for n in range(3)]
    file = written(tmp_path / "e.json", event[0], event[1])
    catalog.ingest(file, format="debezium", into="shop", primary_key="id")
    written(tmp_path / "e.json", event[0], event[2])
    with pytest.warns(UserWarning), pytest.raises(Refused, match="is not what was read before"):
        catalog.ingest(file, format="debezium", into="shop")
    written(tmp_path / "e.json", event[0])
    with pytest.warns(UserWarning), pytest.raises(Refused, match="is not what was read before"):
        catalog.ingest(file, format="debezium", into="shop")
    written(tmp_path / "e.json", event[2])  # another first event makes it another source
    assert catalog.ingest(file, format="debezium", into="shop")[0].inserts == 1


def test_offsets_survive_expiry_and_other_tools(tmp_path: Path) -> None:
    """Neither our snapshots nor our record of users is left; the record beside the snapshots says how far the table is."""
    catalog, file = Catalog(str(tmp_path)), tmp_path / "e.json"
    first, second = (debezium("t", "c", None, {"id": n, "n": 1}) for n in (1, 2))
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "bucket": "1"}
    catalog.create_table("shop.t", columns=["id INT NOT NULL", "n INT"], primary_key="id", options=options)
    catalog.ingest(written(file, first), format="debezium", into="shop")
    for _ in range(3):
        table = catalog.table("shop.t")
        table.write([{"id": 9, "n": 1}])
        latest = table.snapshots()[0].id
        path = tmp_path / f"shop.db/t/snapshot/snapshot-{latest}"
        foreign = {key: value for key, value in json.loads(path.read_text()).items() if key != "properties"}
        path.write_text(json.dumps(foreign))
    catalog.table("shop.t").expire(retain_max=1, retain_min=1, older_than="0s")
    written(file, first, second)
    catalog.ingest(str(file), format="debezium", into="shop")
    assert {key: row["n"] for key, row in rows_of(tmp_path, "t").items()} == {1: 1, 2: 1, 9: 3}
    for record in (tmp_path / "shop.db/t/commit-user").iterdir():
        if "after" in record.name:
            record.write_bytes(b"")
    for path in (tmp_path / "shop.db/t/snapshot").glob("snapshot-*"):
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "properties": {}, "commitUser": "other"}))
    with pytest.warns(UserWarning), pytest.raises(Refused, match="cannot determine"):
        catalog.ingest(str(file), format="debezium", into="shop")


def test_schema_changes_and_what_cannot_be_done(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    types = {"id": {"type": "int32"}, "n": {"type": "int16"}, "a": {"type": "string"}}
    events = [with_schema(debezium(table, "c", None, {"id": 1, "n": 7}), types) for table in ("good", "bad")]
    wide = {**types, "n": {"type": "int64"}}
    events.append(with_schema(debezium("good", "c", None, {"id": 2, "n": 1 << 40, "a": "x"}), wide))
    text = {**types, "n": {"type": "string"}}
    events.append(with_schema(debezium("bad", "c", None, {"id": 2, "n": "seven"}), text))
    events.append(with_schema(debezium("bad", "c", None, {"id": 3, "n": 8}), types))
    events.append(with_schema(debezium("good", "c", None, {"id": 3, "n": 8}), types))
    file = written(tmp_path / "e.json", *events)
    with (
        pytest.warns(UserWarning, match="has stopped"),
        pytest.raises(PartialSuccess, match=r"1 table of 2 stopped: shop\.bad") as caught,
    ):
        catalog.ingest(file, format="debezium", into="shop", primary_key="id")
    assert caught.value.exit_code == 9
    good = rows_of(tmp_path, "good")
    assert {key: (row["n"], row["a"]) for key, row in good.items()} == {1: (7, None), 2: (1 << 40, "x"), 3: (8, None)}
    assert catalog.table("shop.good").scan().to_arrow().schema.field("n").type == pa.int64()
    assert list(rows_of(tmp_path, "bad")) == [1]
    catalog.table("shop.bad").alter.alter_column("n", type="STRING")
    catalog.ingest(file, format="debezium", into="shop")
    assert {key: row["n"] for key, row in rows_of(tmp_path, "bad").items()} == {1: "7", 2: "seven", 3: "8"}


def test_a_key_keeps_its_type_and_takes_what_fits(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    types = {"id": {"type": "int32"}}, {"id": {"type": "int64"}}
    events = [
        with_schema(debezium("t", "c", None, {"id": n}), types[wide]) for n, wide in ((1, False), (2, True), (1 << 40, True))
    ]
    file = written(tmp_path / "e.json", *events)
    with pytest.warns(UserWarning), pytest.raises(BadInput, match="column 'id' cannot take 1099511627776"):
        catalog.ingest(file, format="debezium", into="shop", primary_key="id")
    assert sorted(rows_of(tmp_path, "t")) == [1, 2]


def test_bad_events_stop_a_table_or_go_to_a_file(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    for name in "ab":
        catalog.create_table(f"shop.{name}", columns=["id INT NOT NULL", "n INT"], primary_key="id", bucket=1)
    events: list[Any] = [debezium(name, "c", None, {"id": 1, "n": 1}) for name in "ab"]
    events += [debezium("a", "c", None, {"id": 2, "n": "no number"}), debezium("a", "c", None, {"id": 3, "n": 3})]
    events += [debezium("b", "u", None, None), debezium("b", "c", None, {"id": 3, "n": 3})]
    file = written(tmp_path / "e.json", *events)
    other = written(tmp_path / "c.json", debezium("c", "c", None, {"id": 1}))
    with pytest.warns(UserWarning), pytest.raises(PartialSuccess):
        catalog.ingest([file, other], format="debezium", into="shop", primary_key="id")
    assert [list(rows_of(tmp_path, name)) for name in "abc"] == [[1], [1], ["1"]]
    letters = tmp_path / "letters.json"
    for _ in range(2):
        catalog.ingest([file], format="debezium", into="shop", on_error=str(letters))
    assert [sorted(rows_of(tmp_path, name)) for name in "ab"] == [[1, 3], [1, 3]]
    found = [json.loads(line) for line in letters.read_text().splitlines()]
    assert {(one["dead_letter"]["table"], one["dead_letter"]["source"]) for one in found} == {("shop.a", file), ("shop.b", file)}
    assert len(found) == 2
    assert all(json.loads(one["event"]) in events for one in found)
    catalog.table("shop.a").delete(where="id = 2")
    mended = letters.read_text().replace('\\"no number\\"', "2").splitlines()[:2]
    written(tmp_path / "mended.json", *[line.encode() for line in mended if "shop.a" in line])
    catalog.ingest(str(tmp_path / "mended.json"), format="debezium", into="shop")
    assert sorted(rows_of(tmp_path, "a")) == [1, 2, 3]


def test_events_set_apart_are_kept_when_files_are_replaced_and_processes_die(tmp_path: Path) -> None:
    catalog, letters = Catalog(str(tmp_path)), tmp_path / "letters.json"
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id", "on_error": str(letters)}
    for text in (b"one", b"two"):
        catalog.ingest(written(tmp_path / "e.json", text, debezium("t", "c", None, {"id": 1})), **given)
    assert [json.loads(line)["event"] for line in letters.read_text().splitlines()] == ["one", "two"]
    whole = letters.read_bytes()
    for torn in (whole[:-9], whole + b'{"dead', whole[:-1]):
        letters.write_bytes(torn)
        catalog.ingest(str(tmp_path / "e.json"), **given, commit_user=str(len(torn)))
        assert letters.read_bytes() == whole
    for other in (b"some notes\n", b"some notes", b"[]\n", b'{"dead_letter":{}}\n'):
        letters.write_bytes(other)
        with pytest.raises(UsageError, match="something else than events set apart"):
            catalog.ingest(str(tmp_path / "e.json"), **given)
        assert letters.read_bytes() == other


@pytest.mark.filterwarnings("ignore:.* has stopped")
@pytest.mark.parametrize("bad", [b"not json", debezium("t", "u", None, None)], ids=["no-json", "no-image"])
def test_wherever_a_block_has_a_bad_event_a_mended_source_goes_on(
    tmp_path: Path, bad: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block has two events, so that the bad one is the first of a block, or the last."""
    good = [debezium("t", "c", None, {"id": n}) for n in range(6)]
    monkeypatch.setattr(PIECES, "event_block_bytes", len(json.dumps(good[0])) + 2)
    for place in range(1, 6):
        path = tmp_path / str(place)
        path.mkdir()
        catalog, file = Catalog(str(path)), path / "e.json"
        written(file, *good[:place], bad, *good[place:])
        with pytest.raises(BadInput):
            catalog.ingest(str(file), format="debezium", into="shop", primary_key="id")
        assert sorted(rows_of(path, "t")) == [str(n) for n in range(place)]
        written(file, *good)
        catalog.ingest(str(file), format="debezium", into="shop")
        assert sorted(rows_of(path, "t")) == [str(n) for n in range(6)]


def test_events_set_apart_are_in_their_file_before_a_truncation_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that the events before it are applied, or set apart."""
    letters, truncate, seen = tmp_path / "letters.json", IngestTarget._truncate, list[int]()

    def looking(target: IngestTarget, *given: Any) -> None:
        seen.append(len(letters.read_bytes().splitlines()))
        truncate(target, *given)

    monkeypatch.setattr(IngestTarget, "_truncate", looking)
    events = [debezium("t", "c", None, {"id": 1}), debezium("t", "u", None, None), debezium("t", "t", None, None)]
    file = written(tmp_path / "e.json", *events[:2], b"oops", events[2], debezium("t", "c", None, {"id": 2}))
    Catalog(str(tmp_path)).ingest(file, format="debezium", into="shop", primary_key="id", on_error=str(letters))
    assert seen == [2] and list(rows_of(tmp_path, "t")) == ["2"]


HOSTILE = [
    b"not json",
    b'{"op":"c"',
    b"[1, 2]",
    b'{"op":"x","source":{"db":"shop","table":"t"}}',
    b'{"op":"c","source":{"db":"shop"},"after":{"id":1}}',
    b'{"op":7,"source":{"db":"shop","table":"t"}}',
    b'{"op":"c","source":[],"after":{"id":1}}',
    b'{"op":"c","source":{"db":"shop","table":"t\\u0000x"},"after":{"id":1}}',
    b'{"op":"c","op":"d","source":{"db":"shop","table":"t"},"after":{"id":1}}',
    b'{"op":"c","source":{"db":"shop","table":"t"},"after":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b"{}",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.in_part(2)
def test_the_first_bad_event_is_named_and_those_before_it_are_committed(tmp_path: Path, text: bytes) -> None:
    catalog = Catalog(str(tmp_path))
    good = [debezium("t", "c", None, {"id": n}) for n in (1, 2)]
    file = written(tmp_path / "e.json", good[0], text, good[1])
    position = len(json.dumps(good[0])) + 1
    with pytest.raises(BadInput, match=f"the event at byte {position}") as caught:
        catalog.ingest(file, format="debezium", into="shop", primary_key="id")
    assert caught.value.exit_code == 2
    assert list(rows_of(tmp_path, "t")) == ["1"]
    letters = str(tmp_path / "letters.json")
    catalog.ingest(file, format="debezium", into="shop", on_error=letters)
    assert sorted(rows_of(tmp_path, "t")) == ["1", "2"]
    assert len(Path(letters).read_bytes().splitlines()) == 1


def test_names_of_the_source_never_lead_elsewhere(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path / "wh"))
    names = ["../t", "a/b", "..", ".", "x.y", "$t", "", "t" * 300]
    events = [debezium(name, "c", None, {"id": 1}) for name in names[:-2]]
    events.append({**debezium("t", "c", None, {"id": 1}), "source": {"db": "../../evil", "table": "t"}})
    with pytest.warns(UserWarning, match="has stopped"), pytest.raises(PartialSuccess):
        catalog.ingest(
            written(tmp_path / "e.json", *events, debezium("fine", "c", None, {"id": 1})),
            format="debezium",
            database_from="source",
            primary_key="id",
        )
    assert {path.relative_to(tmp_path).parts[:3] for path in tmp_path.rglob("schema-0")} == {("wh", "shop.db", "fine")}
    assert {path.name for path in tmp_path.iterdir()} == {"wh", "e.json"}


def test_mapping_of_names(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    events = [{**debezium("t", "c", None, {"id": n}), "source": {"db": f"shard{n}", "table": "t"}} for n in (1, 2)]
    events += [debezium("x", "c", None, {"id": 1}), debezium("left", "c", None, {"id": 1}), debezium("y", "c", None, {"id": 1})]
    file = written(tmp_path / "e.json", *events)
    catalog.ingest(
        file, format="debezium", into="shop", table_prefix="p_", table_mapping="shop.y=z", exclude="*.left", primary_key="id"
    )
    assert sorted(path.name for path in (tmp_path / "shop.db").iterdir()) == ["p_t", "p_x", "z"]
    assert sorted(rows_of(tmp_path, "p_t")) == ["1", "2"]
    schemas = [{**debezium("t", "c", None, {"id": 1}), "source": {"db": "d", "schema": name, "table": "t"}} for name in "ab"]
    with pytest.warns(UserWarning), pytest.raises(UsageError, match="would be merged"):
        catalog.ingest(written(tmp_path / "s.json", *schemas), format="debezium", into="other", primary_key="id")


def test_a_missing_image_before(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    events = [debezium("t", "c", None, {"id": 1, "n": "a"}), debezium("t", "u", None, {"id": 1, "n": "b"})]
    events += [debezium("t", "u", {"id": 1, "n": None}, {"id": 2, "n": "c"}), debezium("t", "d", {"id": 2, "n": None}, None)]
    events += [debezium("t", "c", None, {"id": 3, "n": "d"}), debezium("t", "u", None, {"id": 3, "n": "e"})]
    file = written(tmp_path / "e.json", *events)
    with pytest.warns(UserWarning, match="2 updates came without the row before"):
        catalog.ingest(file, format="debezium", into="shop", primary_key="id")
    assert rows_of(tmp_path, "t") == {"3": {"id": "3", "n": "e"}}
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    catalog.create_table("sums.t", columns=["id INT NOT NULL", "n INT"], primary_key="id", options=options, bucket=1)
    numbers = [debezium("t", "c", None, {"id": 1, "n": 1}), debezium("t", "u", None, {"id": 1, "n": 2})]
    with pytest.warns(UserWarning), pytest.raises(BadInput, match="no image of the row before"):
        catalog.ingest(written(tmp_path / "n.json", *numbers), format="debezium", into="sums")


@pytest.mark.parametrize(
    "name, event",
    [
        ("debezium", {**debezium("a", "c", None, {"id": 2}), "op": "x"}),
        ("debezium", {**debezium("a", "c", None, {"id": 2}), "op": 5}),
        ("debezium", debezium("a", "c", None, None)),
        ("maxwell", {**maxwell("a", "c", None, {"id": 2}), "type": "foo"}),
        ("canal", {**canal("a", "c", None, {"id": 2}), "type": None}),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.in_part(2)
def test_an_event_of_no_known_kind_stops_its_table_alone(tmp_path: Path, name: Any, event: Row, is_first: bool) -> None:
    """Also as the first of a new table, for which nothing is known then; set apart, it stops nothing."""
    envelope = dict(FORMATS)[name]
    rows = [envelope(table, "c", None, {"id": number}) for number in (1, 3) for table in ("a", "b")]
    file, letters = written(tmp_path / "e.json", *([event, *rows] if is_first else [*rows[:2], event, *rows[2:]])), tmp_path / "l"
    given = {"format": name, "into": "shop", **({"primary_key": "id"} if name == "debezium" else {})}
    catalog = Catalog(str(tmp_path))
    with (
        pytest.warns(UserWarning, match="shop.a has stopped"),
        pytest.raises(PartialSuccess, match=r"of shop\.a cannot be applied"),
    ):
        catalog.ingest(file, **given)
    assert len(rows_of(tmp_path, "b")) == 2
    catalog.ingest(file, on_error=str(letters), **given)
    assert len(rows_of(tmp_path, "a")) == 2
    assert [json.loads(line)["dead_letter"]["table"] for line in letters.read_text().splitlines()] == ["shop.a"]


@pytest.mark.parametrize("row", [{"id": 2, "name": "b"}, {"ID": 2}, {"id": 2, "NEW": 1, "new": 2}])
def test_names_that_differ_only_in_case_are_not_two_columns(tmp_path: Path, row: Row) -> None:
    """Not even if the event is refused itself, such as for its key."""
    catalog, letters = Catalog(str(tmp_path)), str(tmp_path / "letters.json")
    catalog.create_table("shop.t", columns=["id INT NOT NULL", "Name STRING"], primary_key="id")
    events = [debezium("t", "c", None, {"id": 1, "Name": "a"}), debezium("u", "c", None, {"id": 1})]
    first, second = written(tmp_path / "1.json", *events), written(tmp_path / "2.json", debezium("t", "c", None, row))
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id", "on_error": letters}
    catalog.ingest(first, **given)
    with pytest.warns(UserWarning), pytest.raises(BadInput, match="differ only in case") as refused:
        catalog.ingest(second, **given)
    assert refused.value.details["column"] in {"name", "ID", "new"}
    assert Table.open(str(tmp_path / "shop.db/t")).context.schema.field_names == ("id", "Name")
    assert rows_of(tmp_path, "t") == {1: {"id": 1, "Name": "a"}}


@pytest.mark.parametrize("name", ["gone/letters.json", ".", "e.json/letters"])
def test_a_file_for_bad_events_that_cannot_be_written_is_a_wrong_option(tmp_path: Path, name: str) -> None:
    file = written(tmp_path / "e.json", debezium("t", "c", None, {"id": 1}))
    with pytest.raises(UsageError, match="cannot be written"):
        Catalog(str(tmp_path)).ingest(file, format="debezium", into="shop", primary_key="id", on_error=str(tmp_path / name))


@pytest.mark.parametrize("source", ["events", "events/*.json"])
@pytest.mark.parametrize("follow", [True, False])
def test_bad_events_are_not_set_apart_in_a_source(tmp_path: Path, source: str, follow: bool) -> None:
    """A directory or a pattern may have the file among its own: each run would read it, and set its events apart again."""
    events = tmp_path / "events"
    events.mkdir()
    written(events / "e.json", debezium("t", "c", None, None), debezium("t", "c", None, {"id": 1}))
    given: dict[str, Any] = {
        "format": "debezium",
        "into": "shop",
        "primary_key": "id",
        "follow": follow,
        "max_rounds": 2 if follow else None,
    }
    with pytest.raises(UsageError, match="is one of the sources"):
        Catalog(str(tmp_path)).ingest(str(tmp_path / source), on_error=str(events / "bad.json"), **given)
    assert not (events / "bad.json").exists()
    assert not (tmp_path / "shop.db/t").exists()
    os.link(written(tmp_path / "bad.json"), events / "old.json")
    with pytest.raises(UsageError, match="is one of the sources"):
        Catalog(str(tmp_path)).ingest(str(tmp_path / source), on_error=str(tmp_path / "bad.json"), **given)
    assert (events / "old.json").exists()


@pytest.mark.parametrize("is_dry", [True, False])
def test_names_that_mean_no_table_are_said(tmp_path: Path, is_dry: bool) -> None:
    file, catalog = written(tmp_path / "e.json", debezium("t", "c", None, {"id": 1})), Catalog(str(tmp_path))
    run: Any = catalog.plan_ingest if is_dry else catalog.ingest
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id"}
    with pytest.warns(UserWarning, match=r"include nothing\* and table.mapping shop\.nope=x could mean"):
        run(file, include=["t", "nothing*"], table_mapping=["shop.nope=x", "t=t"], **given)
    with pytest.warns(UserWarning, match=r"include nothing\* could mean"):
        run(file, include=["nothing*"], **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(file, include=["shop.*"], table_mapping=["shop.t=t"], **given)


def test_a_new_table_waits_for_its_first_good_event(tmp_path: Path) -> None:
    """A bad event names no key: that is no reason to stop."""
    bad, letters = debezium("t", "c", None, None), tmp_path / "letters.json"
    file, catalog = written(tmp_path / "e.json", bad), Catalog(str(tmp_path))
    with pytest.warns(UserWarning), pytest.raises(BadInput, match="no image of the row after"):
        catalog.ingest(file, format="debezium", into="shop")
    for _ in range(2):
        [done] = catalog.ingest(file, format="debezium", into="shop", on_error=str(letters))
        assert (done.state, done.created, done.bad_events, len(letters.read_text().splitlines())) == ("applied", False, 1, 1)


@pytest.mark.parametrize("envelope, name", [(debezium, "debezium"), (maxwell, "maxwell"), (canal, "canal")])
def test_sums_are_right_after_updates(tmp_path: Path, envelope: Any, name: Any) -> None:
    """An update retracts the row before, whose null is told from a column that has not changed."""
    catalog = Catalog(str(tmp_path))
    options = {"merge-engine": "aggregation", "fields.name.aggregate-function": "sum", "fields.extra.aggregate-function": "sum"}
    columns = ["id INT NOT NULL", "name INT", "extra INT"]
    catalog.create_table("shop.t", columns=columns, primary_key="id", options=options, bucket=1)
    rows = [{"id": 1, "name": 5, "extra": None}, {"id": 1, "name": None, "extra": 7}, {"id": 1, "name": 2, "extra": 7}]
    events = [envelope("t", "c", None, rows[0]), envelope("t", "u", rows[0], rows[1]), envelope("t", "u", rows[1], rows[2])]
    if name == "canal":
        for event in events:
            event["mysqlType"] = dict.fromkeys(("id", "name", "extra"), "int")
    catalog.ingest(written(tmp_path / "e.json", *events), format=name, into="shop")
    assert rows_of(tmp_path, "t") == {1: {"id": 1, "name": 2, "extra": 7}}


def test_a_dry_run_shows_and_changes_nothing(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path / "wh"))
    file = tmp_path / "e.json"
    file.write_bytes(Stream(6, tables=1, is_typed=True).add(200).text())
    (table,) = catalog.plan_ingest(str(file), format="debezium", into="shop", primary_key="id")
    assert not (tmp_path / "wh").exists()
    assert table.created and table.inserts and table.updates and table.deletes
    (done,) = catalog.ingest(str(file), format="debezium", into="shop", primary_key="id")
    assert (done.inserts, done.updates, done.deletes, done.columns) == (
        table.inserts,
        table.updates,
        table.deletes,
        table.columns,
    )


def test_a_table_takes_events_itself(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["id INT NOT NULL", "name STRING"], primary_key="id", bucket=1)
    file = written(tmp_path / "e.json", *[debezium("x", "c", None, {"id": n, "name": "a", "more": 1}) for n in range(3)])
    assert table.ingest(file, format="debezium").inserts == 3
    assert table.scan().to_arrow().column_names == ["id", "name", "more"]
    assert table.ingest(file, format="debezium").inserts == 0


def test_plain_rows_and_keys(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    file = written(tmp_path / "e.json", {"id": 1, "tags": ["a", {"b": 1.5}], "big": 1 << 70}, {"id": 2, "tags": None})
    with pytest.raises(UsageError, match="name no table"):
        catalog.ingest(file, format="json", into="shop")
    catalog.ingest(file, format="json", into="shop.t")
    assert rows_of(tmp_path, "t") == {
        "1": {"id": "1", "tags": '["a",{"b":1.5}]', "big": str(1 << 70)},
        "2": {"id": "2", "tags": None, "big": None},
    }
    events = written(tmp_path / "d.json", debezium("k", "c", None, {"id": 1}))
    with pytest.warns(UserWarning), pytest.raises(UsageError, match=r"primary key of shop\.k is not known"):
        catalog.ingest(events, format="debezium", into="shop")
    with pytest.warns(UserWarning), pytest.raises(UsageError, match="no column 'other'"):
        catalog.ingest(events, format="debezium", into="shop", primary_key="k=other")


@pytest.mark.parametrize("seed", range(2))
def test_truncations_are_applied_in_their_place(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, chance = Stream(seed, tables=2, truncates=True).add(500), random.Random(seed)
    file = tmp_path / "e.json"
    file.write_bytes(stream.text())
    catalog, commit = Catalog(str(tmp_path)), IngestTarget.commit

    def dying(target: IngestTarget) -> None:
        commit(target)
        if chance.random() < 0.2:
            raise Killed

    monkeypatch.setattr(IngestTarget, "commit", dying)
    for _ in range(100):
        try:
            done = catalog.ingest(str(file), format="debezium", into="shop", primary_key="id")
            break
        except Killed:
            continue
    check(tmp_path, stream, as_text)
    assert stream.text().count(b'"op": "t"') and done
    shards = [
        {**debezium("m", op, None, {"id": 1} if op == "c" else None), "source": {"db": db, "table": "m"}}
        for db, op in ("ac", "bt")
    ]
    with pytest.warns(UserWarning), pytest.raises(NotSupported, match="cannot be told apart"):
        catalog.ingest(written(tmp_path / "m.json", *shards), format="debezium", into="shop", primary_key="id", commit_user="m")


def test_a_table_that_another_process_has_filled_from_one_of_two_files_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither are the rows of the other file taken for committed, nor those of the first one written again."""
    catalog, commit = Catalog(str(tmp_path)), IngestTarget.commit
    files = [written(tmp_path / f"{n}.json", debezium("t", "c", None, {"id": n})) for n in range(2)]

    def overtaken(target: IngestTarget) -> None:
        monkeypatch.setattr(IngestTarget, "commit", commit)
        catalog.ingest(files[0], format="debezium", into="shop", primary_key="id")
        commit(target)

    catalog.create_table("shop.t", columns=["id INT NOT NULL"], primary_key="id", bucket=1)
    monkeypatch.setattr(IngestTarget, "commit", overtaken)
    with pytest.warns(UserWarning, match="has stopped"), pytest.raises(Conflict, match="another ingest of user"):
        catalog.ingest(files, format="debezium", into="shop")
    assert list(rows_of(tmp_path, "t")) == [0]
    (done,) = catalog.ingest(files, format="debezium", into="shop")
    assert done.inserts == 1 and list(rows_of(tmp_path, "t")) == [0, 1]


def test_of_several_bad_events_of_a_block_the_first_one_stops_it(tmp_path: Path) -> None:
    """In whichever step of its decoding it is found."""
    nameless = {**debezium("t", "c", None, {"id": 2}), "source": {"db": "shop"}}
    file = written(tmp_path / "e.json", debezium("t", "c", None, {"id": 1}), nameless, b"no json", b'{"op":"x"}')
    with pytest.raises(BadInput, match="it names no table"):
        Catalog(str(tmp_path)).ingest(file, format="debezium", into="shop", primary_key="id")
    assert list(rows_of(tmp_path, "t")) == ["1"]


def test_rows_of_all_tables_together_fill_the_share_of_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [debezium(f"t{n}", "c", None, {"id": n, "text": "x" * 1000}) for n in range(64)]
    held, commit = list[int](), IngestRun.commit

    def noting(run: IngestRun) -> None:
        held.append(sum(target.held_bytes for target in run.targets.values()))
        commit(run)

    monkeypatch.setattr(IngestRun, "commit", noting)
    Catalog(str(tmp_path)).ingest(
        written(tmp_path / "e.json", *events), format="debezium", into="shop", primary_key="id", memory=64_000
    )
    assert len(held) > 2 and max(held) < 24_000


def test_updates_without_the_row_before_are_counted(tmp_path: Path) -> None:
    events = [debezium("t", "u", None, {"id": n}) for n in range(3)]
    with pytest.warns(UserWarning, match="3 updates came without the row before"):
        Catalog(str(tmp_path)).ingest(written(tmp_path / "e.json", *events), format="debezium", into="shop", primary_key="id")


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path) -> None:
    """Set apart, it would be lost: its mark would lie within a line."""
    one, two = (json.dumps(debezium("t", "c", None, {"id": n})).encode() for n in range(2))
    file, letters = tmp_path / "e.json", tmp_path / "letters.json"
    file.write_bytes(one + b"\n" + two[:30])
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id", "on_error": str(letters)}
    with pytest.warns(UserWarning, match="its last line has no end and is no JSON, and waits for the next run"):
        Catalog(str(tmp_path)).ingest(str(file), **given)
    assert not letters.read_bytes()
    file.write_bytes(one + b"\n" + two)
    (done,) = Catalog(str(tmp_path)).ingest(str(file), **given)
    assert done.inserts == 1 and len(rows_of(tmp_path, "t")) == 2


def test_many_tables_share_a_line_of_the_summary(tmp_path: Path) -> None:
    events = [debezium(f"t{n}", "u", None, {"id": 1}) for n in range(6)]
    with pytest.warns(UserWarning, match="6 tables: 6 updates came without the row before") as warned:
        Catalog(str(tmp_path)).ingest(written(tmp_path / "e.json", *events), format="debezium", into="shop", primary_key="id")
    assert len(warned) == 1


def test_bad_events_of_no_table_are_counted(tmp_path: Path) -> None:
    file = written(tmp_path / "e.json", b"{", debezium("t", "c", None, {"id": 1}), b"[]")
    letters = str(tmp_path / "letters.json")
    with pytest.warns(UserWarning, match="2 bad events without the name of a table, set apart in .*letters.json"):
        Catalog(str(tmp_path)).ingest(file, format="debezium", into="shop", primary_key="id", on_error=letters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the next run meets them again, and sets nothing apart
        Catalog(str(tmp_path)).ingest(file, format="debezium", into="shop", primary_key="id", on_error=letters)


@pytest.mark.parametrize("on_error", ["fail", "letters.json"])
@pytest.mark.parametrize("block", [1, 1 << 20], ids=["cut", "whole"])
def test_a_column_of_another_kind_stops_its_table_at_its_first_value(
    tmp_path: Path, block: int, on_error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the events are cut: those before it have null there, and are applied."""
    monkeypatch.setattr(PIECES, "event_block_bytes", block)
    dates = {**TYPES, "n": {"type": "int32", "optional": True}}
    texts = {**dates, "day": {"type": "string", "optional": True}}
    rows: list[Row] = [
        {"id": 1, "day": 1, "n": 5},
        {"id": 2, "day": None, "n": 5},
        {"id": 3, "day": None, "n": "x"},
        {"id": 4, "day": "x", "n": 5},
    ]
    events = [debezium("t", "c", None, row) for row in rows]
    typed = [with_schema(events[0], dates), *(with_schema(event, texts) for event in events[1:])]
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id"}
    given["on_error"] = on_error if on_error == "fail" else str(tmp_path / on_error)
    why = "cannot be applied" if on_error == "fail" else "column 'day' is DATE"
    with pytest.warns(UserWarning, match="has stopped"), pytest.raises(BadInput, match=why):
        Catalog(str(tmp_path)).ingest(written(tmp_path / "e.json", *typed), **given)
    assert sorted(rows_of(tmp_path, "t")) == [1, 2]
    if on_error != "fail":
        letters = (tmp_path / on_error).read_text().splitlines()
        assert [json.loads(json.loads(one)["event"]) for one in letters] == [typed[2]]


@pytest.mark.parametrize("columns", [("d", "e"), ("e", "d")])
def test_of_several_columns_of_another_kind_the_one_with_the_first_value_stops_the_table(
    tmp_path: Path, columns: tuple[str, str]
) -> None:
    """Else the events between both would be applied with null in place of the first value."""
    first, second = columns
    rows: list[Row] = [{"id": number, "d": None, "e": None} for number in range(1, 6)]
    rows[0] |= {"d": 1, "e": 1}
    rows[2][first], rows[4][second] = "x", "x"
    dates = {"id": TYPES["id"], "d": TYPES["day"], "e": TYPES["day"]}
    texts = {**dates, **{name: {"type": "string", "optional": True} for name in columns}}
    events = [with_schema(debezium("t", "c", None, row), texts if number else dates) for number, row in enumerate(rows)]
    with pytest.warns(UserWarning, match="has stopped"), pytest.raises(BadInput, match=f"column '{first}' is DATE"):
        Catalog(str(tmp_path)).ingest(
            written(tmp_path / "e.json", *events),
            format="debezium",
            into="shop",
            primary_key="id",
            on_error=str(tmp_path / "letters.json"),
        )
    assert sorted(rows_of(tmp_path, "t")) == [1, 2]


def test_a_truncation_in_one_file_does_not_bring_the_events_of_another_back(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    events = [debezium("t", "c", None, {"id": 1})], [debezium("t", "t", None, None), debezium("t", "c", None, {"id": 2})]
    files = [written(tmp_path / f"{number}.json", *some) for number, some in enumerate(events)]
    for _ in range(2):
        catalog.ingest(files, format="debezium", into="shop", primary_key="id")
        assert list(rows_of(tmp_path, "t")) == ["2"]


def test_the_truncation_of_a_shard_spares_the_rows_of_earlier_runs(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))

    def event(database: str, op: str, number: int) -> Row:
        after = None if op == "t" else {"id": number}
        return {**debezium("m", op, None, after), "source": {"db": database, "table": "m"}}

    def apply(name: str, *events: Row) -> None:
        catalog.ingest(written(tmp_path / name, *events), format="debezium", into="shop", primary_key="id")

    apply("1.json", event("a", "c", 1))
    apply("2.json", event("a", "t", 0), event("a", "c", 2))
    apply("3.json", event("b", "c", 3))
    with pytest.warns(UserWarning), pytest.raises(NotSupported, match=r"the rows of a\.m, b\.m"):
        apply("4.json", event("a", "c", 4), event("a", "t", 0))
    assert sorted(rows_of(tmp_path, "m")) == ["2", "3", "4"]


def test_files_are_followed_as_they_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(8, tables=2).add(400)
    text, waits = stream.text(), list[float]()
    cuts = [0, 10, len(text) // 3, len(text) // 2, 2 * len(text) // 3, len(text)]  # in the middle of lines
    files = [tmp_path / "in/1.json", tmp_path / "in/2.json"]
    border = text.rfind(b"\n", 0, cuts[3]) + 1
    files[0].parent.mkdir()

    def grow(_: object, seconds: float) -> None:
        waits.append(seconds)
        end = cuts[len(waits)]
        files[0].write_bytes(text[: min(end, border)])
        if end > border:
            files[1].write_bytes(text[border:end])

    monkeypatch.setattr("paimon_cli.api.ingest_reading.SystemClock.sleep", grow)
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id", "follow": True, "interval": "3 s"}
    catalog = Catalog(str(tmp_path))
    done = catalog.ingest(str(tmp_path / "in/*.json"), **given, max_rounds=len(cuts))
    check(tmp_path, stream, as_text)
    assert waits == [3.0] * (len(cuts) - 1) and len(done[0].snapshots) > 1
    again = catalog.ingest(str(tmp_path / "in/*.json"), **{**given, "follow": False, "interval": None})
    assert not any(table.snapshots for table in again)
    with pytest.raises(NotSupported, match="standard input"):
        catalog.ingest("-", **given)


def test_a_file_that_grows_as_fast_as_it_is_read_is_committed_each_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = count()
    monkeypatch.setattr("paimon_cli.api.ingest_reading.SystemClock.now_millis", lambda clock: next(now) * 1000)
    monkeypatch.setattr(PIECES, "event_block_bytes", 100)
    file = written(tmp_path / "e.json", *[debezium("t", "c", None, {"id": n}) for n in range(9)])
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id", "follow": True, "max_rounds": 1}
    (done,) = Catalog(str(tmp_path)).ingest(file, **given, interval="3 s")
    assert 2 <= len(done.snapshots) < 9 and done.inserts == 9


@pytest.mark.parametrize("names_file", [True, False])
def test_a_followed_file_that_is_replaced_by_one_of_its_size_is_read(
    tmp_path: Path, names_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in/e.json"
    file.parent.mkdir()
    written(file, debezium("t", "c", None, {"id": 1}))
    os.utime(file, (1, 1))

    def replace(*_: object) -> None:
        written(file, debezium("t", "c", None, {"id": 2}))

    monkeypatch.setattr("paimon_cli.api.ingest_reading.SystemClock.sleep", replace)
    source = str(file if names_file else file.parent)
    Catalog(str(tmp_path)).ingest(source, format="debezium", into="shop", primary_key="id", follow=True, max_rounds=3)
    assert sorted(rows_of(tmp_path, "t")) == ["1", "2"]


def test_a_dry_run_does_not_follow(tmp_path: Path) -> None:
    file = written(tmp_path / "e.json", debezium("t", "c", None, {"id": 1}))
    with pytest.raises(UsageError, match="it shows what there is now"):
        Catalog(str(tmp_path)).plan_ingest(file, format="debezium", into="shop", primary_key="id", follow=True)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[IngestRun]:
    """The runs that end from now on."""
    runs = list[IngestRun]()

    def watch(run: IngestRun, failure: PaimonError | None) -> list[IngestedTable]:
        runs.append(run)
        return ended(run, failure)

    monkeypatch.setattr(IngestRun, "ended", watch)
    return runs


def many_names(tmp_path: Path, *names: str) -> str:
    events = [debezium(name, "c", None, {"id": 1}) for name in ("good", *names)]
    return written(tmp_path / "e.json", *events, debezium("good", "c", None, {"id": 2}))


@pytest.mark.parametrize("form", ["t{}", "../{}", "x" * 2000 + "{}"], ids=["tables", "refused", "long"])
def test_a_source_that_makes_names_up_is_bounded(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tables are written; the others are not remembered one by one, and end in one error."""
    monkeypatch.setattr("paimon_cli.api.ingest_run.MAX_TABLES", 5)
    runs = watched(monkeypatch)
    file = many_names(tmp_path, *map(form.format, range(60)))
    with warnings.catch_warnings(record=True) as said, pytest.raises(PartialSuccess) as caught:
        warnings.simplefilter("always")
        Catalog(str(tmp_path)).ingest(file, format="debezium", into="shop", primary_key="id")
    assert sorted(rows_of(tmp_path, "good")) == ["1", "2"]
    (run,) = runs
    assert len(run.by_source) <= 5 and len(run.targets) <= 5 + 20 and len(said) <= (1 if form == "t{}" else 20)
    assert all(len(source.name) < 2000 for target in run.targets.values() for source in target.sources)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 5000
    Catalog(str(tmp_path)).ingest(file, format="debezium", into="shop", include="good")


def test_names_that_are_left_out_are_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.api.ingest_run.MAX_TABLES", 5)
    runs = watched(monkeypatch)
    file = many_names(tmp_path, *map("t{}".format, range(60)))
    Catalog(str(tmp_path)).ingest(file, format="debezium", into="shop", primary_key="id", exclude="t*")
    assert len(runs[0].by_source) == len(runs[0].targets) == 1 and sorted(rows_of(tmp_path, "good")) == ["1", "2"]


def test_a_table_of_too_many_tables_of_the_source_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not go on without the events of those above the limit, as if it had them."""
    monkeypatch.setattr("paimon_cli.api.ingest_run.MAX_TABLES", 5)
    catalog = Catalog(str(tmp_path))
    catalog.create_table("shop.all", columns=["id STRING NOT NULL"], primary_key="id", bucket=1)
    events = [debezium(f"t{n}", "c", None, {"id": f"{n}"}) for n in range(8)]
    with pytest.warns(UserWarning), pytest.raises(BadInput, match="more than 5 tables"):
        catalog.ingest(written(tmp_path / "e.json", *events), format="debezium", into="shop.all")
    assert not rows_of(tmp_path, "all")


def test_columns_of_all_tables_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.api.ingest_run._LEAST_COLUMNS", 7)
    narrow = [debezium("good", "c", None, {"id": n}) for n in range(3)]
    wide = debezium("wide", "c", None, {"id": 1, **{f"c{n}": "" for n in range(6)}})
    file = written(tmp_path / "e.json", narrow[0], wide, narrow[1], debezium("good", "c", None, {"id": 7, "x": 1}), narrow[2])
    with pytest.warns(UserWarning), pytest.raises(PartialSuccess, match="more than 7 columns"):
        Catalog(str(tmp_path)).ingest(file, format="debezium", into="shop", primary_key="id", memory=4096)
    assert sorted(rows_of(tmp_path, "good")) == ["0", "1", "2", "7"] and not (tmp_path / "shop.db/wide").exists()
    Catalog(str(tmp_path)).ingest(file, format="debezium", into="shop", primary_key="id", memory=10 * 1024, include="wide")
    assert sorted(rows_of(tmp_path, "wide")) == ["1"]


def test_events_set_apart_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends before more are held; what came before is committed, and goes on with another file."""
    monkeypatch.setattr("paimon_cli.api.dead_letters.MAX_LETTERS", 3)
    monkeypatch.setattr(PIECES, "event_block_rows", 2)
    events = [event for n in range(5) for event in (debezium("t", "c", None, {"id": n}), debezium("t", "u", None, None))]
    file, letters = written(tmp_path / "e.json", *events), str(tmp_path / "letters.json")
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id"}
    for _ in range(2):
        with pytest.raises(BadInput, match="has 3 events set apart"):
            Catalog(str(tmp_path)).ingest(file, **given, on_error=letters)
        assert len(rows_of(tmp_path, "t")) == 3 == len(Path(letters).read_bytes().splitlines())
    Catalog(str(tmp_path)).ingest(file, **given, on_error=str(tmp_path / "more.json"))
    assert len(rows_of(tmp_path, "t")) == 5 and len((tmp_path / "more.json").read_bytes().splitlines()) == 2


@pytest.mark.parametrize("replaced", ["longer", "shorter", "cut"])
def test_a_followed_file_that_is_replaced_is_noticed(tmp_path: Path, replaced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins with the same event, so that only the last one that was read shows it."""
    lines = [json.dumps(debezium("t", "c", None, {"id": n})).encode() + b"\n" for n in range(6)]
    texts = {"longer": lines[0] + b"".join(lines[2:]), "shorter": lines[0] + lines[5], "cut": lines[0]}
    file = tmp_path / "e.json"
    file.write_bytes(b"".join(lines[:3]))
    monkeypatch.setattr("paimon_cli.api.ingest_reading.SystemClock.sleep", lambda *_: file.write_bytes(texts[replaced]))
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id"}
    with pytest.raises(Refused, match="is not what was read before"):
        Catalog(str(tmp_path)).ingest(str(file), **given, follow=True, max_rounds=3)
    assert sorted(rows_of(tmp_path, "t")) == ["0", "1", "2"]


def test_a_damaged_archive_is_named_and_the_files_before_it_are_committed(tmp_path: Path) -> None:
    files = [written(tmp_path / "1.json", debezium("t", "c", None, {"id": 1})), str(tmp_path / "2.json.gz")]
    Path(files[1]).write_bytes(gzip.compress(Path(files[0]).read_bytes() * 9)[:30])
    with pytest.raises(BadInput, match=r"cannot read .*2\.json\.gz(.|\n)*copy it again"):
        Catalog(str(tmp_path)).ingest(files, format="debezium", into="shop", primary_key="id")
    assert sorted(rows_of(tmp_path, "t")) == ["1"]


def test_rows_are_ordered_by_a_number_of_their_events(tmp_path: Path) -> None:
    """The events of the second file are older, although they arrive later."""
    catalog = Catalog(str(tmp_path))

    def at(lsn: int, op: str, before: Row | None, after: Row | None) -> Row:
        return {**debezium("t", op, before, after), "source": {"db": "shop", "table": "t", "lsn": lsn}}

    rows = [{"id": n, "n": name} for n, name in ((1, "old"), (1, "new"), (2, "x"))]
    newer = [at(20, "u", rows[0], rows[1]), at(21, "d", rows[2], None)]
    older = [at(10, "c", None, rows[0]), at(11, "c", None, rows[2])]
    files = [written(tmp_path / "new.json", *newer), written(tmp_path / "old.json", *older)]
    for file in files:
        catalog.ingest(file, format="debezium", into="shop", primary_key="id", sequence="source.lsn")
    assert rows_of(tmp_path, "t") == {"1": {"id": "1", "n": "new", "source_lsn": 20}}
    with pytest.warns(UserWarning), pytest.raises(BadInput, match=r"no number 'source\.none'"):
        catalog.ingest(files[0], format="debezium", into="other", primary_key="id", sequence="source.none")
    without = debezium("t", "c", None, rows[2])
    file, letters = written(tmp_path / "some.json", newer[0], without, at(30, "c", None, {"id": 3})), tmp_path / "letters.json"
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "sequence": "source.lsn", "on_error": str(letters)}
    catalog.ingest(file, **given)
    assert [json.loads(json.loads(line)["event"]) for line in letters.read_text().splitlines()] == [without]
    assert sorted(rows_of(tmp_path, "t")) == ["1", "3"]
    plain = written(tmp_path / "plain.json", {"id": 1, "ts": 5})
    clash = maxwell("clash", "c", None, {"id": 1, "ts": "2020-01-01 00:00:00"})
    clashing = written(tmp_path / "clash.json", clash)
    calls: list[dict[str, Any]] = [{"format": "json", "into": "plain.t"}, {"format": "maxwell", "into": "plain"}]
    for file, given in zip((plain, clashing), calls, strict=True):
        with pytest.warns(UserWarning), pytest.raises(UsageError, match="a column ts of their own") as caught:
            catalog.ingest(file, **given, primary_key="id", sequence="ts")
        assert "--option sequence.field=ts" in str(caught.value.hint)
    catalog.create_table("third.t", columns=["id STRING NOT NULL"], primary_key="id", bucket=1)
    with pytest.warns(UserWarning), pytest.raises(UsageError, match="not ordered by source_lsn"):
        catalog.ingest(files[0], format="debezium", into="third", sequence="source.lsn")


def _damage_schema(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (table / "schema/schema-0").write_text("[]")


def _break_commit(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = IngestTarget.commit

    def broken(target: IngestTarget) -> None:
        if target.name == "shop.b":
            raise ZeroDivisionError("of a library")
        commit(target)

    monkeypatch.setattr(IngestTarget, "commit", broken)


def _break_rows(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = IngestTarget.apply

    def broken(target: IngestTarget, *arguments: Any) -> None:
        if target.name == "shop.b":
            raise ZeroDivisionError("of a library")
        apply(target, *arguments)

    monkeypatch.setattr(IngestTarget, "apply", broken)


@pytest.mark.parametrize("damage", [_damage_schema, _break_commit, _break_rows])
def test_whatever_one_table_meets_the_others_go_on(tmp_path: Path, damage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [debezium(name, "c", None, {"id": 1}) for name in "abc"]
    source, catalog = written(tmp_path / "events", *first), Catalog(str(tmp_path))
    catalog.ingest(source, format="debezium", into="shop", primary_key=KEYS)
    damage(tmp_path / "shop.db/b", monkeypatch)
    written(tmp_path / "events", *first, *[debezium(name, "c", None, {"id": 2}) for name in "abc"])
    with pytest.warns(UserWarning), pytest.raises(PartialSuccess) as stopped:
        catalog.ingest(source, format="debezium", into="shop", primary_key=KEYS)
    assert [one.table for one in stopped.value.details["tables"] if one.error] == ["shop.b"]
    assert [len(rows_of(tmp_path, name)) for name in "ac"] == [2, 2]


def test_a_merge_that_leaves_no_value_for_a_column_stops_its_table(tmp_path: Path) -> None:
    """It is no bug, whatever the format: Parquet refuses such a row with words of its own."""
    table = Table.create(
        str(tmp_path / "t"),
        columns=["id INT NOT NULL", "n INT NOT NULL", "v INT"],
        primary_key=KEYS,
        options={"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "bucket": "1"},
    )
    row = {"id": 1, "n": 1, "v": 2}
    source = written(tmp_path / "events", debezium("t", "c", None, row), debezium("t", "d", row, None))
    with pytest.warns(UserWarning), pytest.raises(Refused, match="column n of a row is null"):
        table.ingest(source, format="debezium")


def test_blocks_of_one_shard_and_of_several_are_committed_together(tmp_path: Path) -> None:
    """Rows of several are put in order, and have their kinds in another form."""

    def from_shard(number: int, key: int) -> Row:
        return {**debezium("t", "c", None, {"id": key}), "source": {"db": f"shard{number}", "table": "t"}}

    written(tmp_path / "e1.json", from_shard(1, 1), from_shard(1, 2))
    written(tmp_path / "e2.json", from_shard(1, 3), from_shard(2, 4), from_shard(1, 5))
    Catalog(str(tmp_path)).ingest(str(tmp_path / "e*.json"), format="debezium", into="shop", primary_key="id")
    assert sorted(rows_of(tmp_path, "t")) == ["1", "2", "3", "4", "5"]
