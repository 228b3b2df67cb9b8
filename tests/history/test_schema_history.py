"""Schemas are written once and read by id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.datatypes.data_type import BinaryType, DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import CommitUnknown, DamagedFile, NotFound, StorageUnavailable, UsageError
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus, PutOutcome

SCHEMA = TableSchema(0, (DataField(0, "k", parse_type("INT NOT NULL")),), 0, (), ("k",), {"bucket": "1"}, None, 5)


def test_schemas_are_committed_once(tmp_path: Path) -> None:
    past = SchemaHistory(LocalStorage(), TableLayout(str(tmp_path)))
    assert past.ids() == [] and past.latest_id() is None
    assert past.commit(SCHEMA) and past.commit(replace(SCHEMA, id=1, time_millis=6))
    assert not past.commit(replace(SCHEMA, time_millis=7)), "another writer took the id"
    assert past.ids() == [0, 1]
    assert past.latest().time_millis == 6 and past.get(0) == replace(SCHEMA, options=past.get(0).options)


def test_a_directory_without_a_schema_is_not_a_table(tmp_path: Path) -> None:
    past = SchemaHistory(LocalStorage(), TableLayout(str(tmp_path)))
    with pytest.raises(NotFound, match="no table at") as failure:
        past.latest()
    assert "create" in failure.value.hint
    with pytest.raises(NotFound, match="no schema 3"):
        past.get(3)


def test_a_file_that_holds_another_schema_is_damaged(tmp_path: Path) -> None:
    past = SchemaHistory(LocalStorage(), TableLayout(str(tmp_path)))
    past.commit(SCHEMA)
    (tmp_path / "schema" / "schema-1").write_text(SCHEMA.to_json())
    with pytest.raises(DamagedFile, match="holds the id 0"):
        past.latest()


class Unclear(LocalStorage):
    effective = True

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if self.effective:
            super().put_if_absent(path, data)
        return PutOutcome.UNKNOWN


def test_an_unclear_answer_is_settled_by_the_file(tmp_path: Path) -> None:
    storage = Unclear()
    past = SchemaHistory(storage, TableLayout(str(tmp_path)))
    assert past.commit(SCHEMA)
    assert not past.commit(replace(SCHEMA, time_millis=9))
    storage.effective = False
    with pytest.raises(CommitUnknown):
        past.commit(replace(SCHEMA, id=1))


@pytest.mark.parametrize(
    ("there", "outcome"),
    [("the same", True), ("another one", False), ("a part of it", None), ("nothing", None), ("unreadable", None)],
)
@pytest.mark.parametrize("answer", [PutOutcome.UNKNOWN, PutOutcome.EXISTS])
def test_the_content_found_instead_of_a_schema_decides(
    tmp_path: Path, there: str, outcome: bool | None, answer: PutOutcome
) -> None:
    class Answers(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            content = {"the same": data, "another one": data.replace(b"5", b"6"), "a part of it": data[:9]}.get(there)
            if content is not None:
                self.write_new(path, content)
            return answer

        def read_bytes(self, path: str) -> bytes:
            if there == "unreadable":
                raise StorageUnavailable("the storage is away")
            return super().read_bytes(path)

    past = SchemaHistory(Answers(), TableLayout(str(tmp_path)))
    if outcome is not None:
        assert past.commit(SCHEMA) is outcome
        return
    with pytest.raises(CommitUnknown, match=r"schema 0 of .* may or may not have been written") as unknown:
        past.commit(SCHEMA)
    assert unknown.value.details == {"path": past.layout.schema(0)}
    assert unknown.value.hint.endswith(f"paimon-cli schemas ls {past.layout.argument}")


def test_schemas_that_a_stale_listing_hides_are_found(tmp_path: Path) -> None:
    past = SchemaHistory(LocalStorage(), TableLayout(str(tmp_path)))
    for number in range(4):
        past.commit(replace(SCHEMA, id=number, time_millis=number))
    (tmp_path / "schema/schema-x").write_text("{}")

    class Stale(LocalStorage):
        shown = 2

        def list_directory(self, path: str) -> list[FileStatus]:
            return [status for status in super().list_directory(path) if status.name < f"schema-{self.shown}"]

    stale = SchemaHistory(Stale(), TableLayout(str(tmp_path)))
    assert stale.ids() == [0, 1] and stale.latest_id() == 3 and stale.latest().time_millis == 3
    Stale.shown = 0
    assert stale.latest_id() is None, "where nothing is shown there is no table"


def test_schemas_are_read_once_and_named_when_they_cannot_be(tmp_path: Path) -> None:
    past = SchemaHistory(LocalStorage(), TableLayout(str(tmp_path)))
    past.commit(SCHEMA)
    first = past.get(0)
    (tmp_path / "schema/schema-0").unlink()
    assert past.get(0) is first
    with pytest.raises(NotFound, match=r"no schema 0 in .*schema/schema-0 does not exist"):
        SchemaHistory(LocalStorage(), TableLayout(str(tmp_path))).get(0)
    (tmp_path / "schema/schema-3").write_text(SCHEMA.to_json())
    with pytest.raises(DamagedFile) as damaged:
        past.get(3)
    assert damaged.value.details["path"] == past.layout.schema(3)
    assert past.newest_readable() is None


def test_a_damaged_schema_is_reported_with_its_path(tmp_path: Path) -> None:
    history = SchemaHistory(LocalStorage(), TableLayout(str(tmp_path)))
    path = tmp_path / "schema" / "schema-3"
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(DamagedFile, match=str(path)):
        history.get(3)


def test_a_schema_that_cannot_be_read_is_not_published(tmp_path: Path) -> None:
    past = SchemaHistory(LocalStorage(), TableLayout(str(tmp_path)))
    assert past.commit(SCHEMA)
    with pytest.raises(UsageError, match=r"BINARY\(0\)"):
        past.commit(
            replace(SCHEMA, id=1, fields=(*SCHEMA.fields, DataField(1, "b", BinaryType("BINARY", 0))), highest_field_id=1)
        )
    assert past.ids() == [0]
