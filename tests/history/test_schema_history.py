"""Schemas are written once and read by id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import CommitUnknown, DamagedFile, NotFound
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome

SCHEMA = TableSchema(0, (DataField(0, "k", parse_type("INT NOT NULL")),), 0, (), ("k",), {"bucket": "1"}, None, 5)


def test_schemas_are_committed_once(tmp_path: Path) -> None:
    past = SchemaHistory(LocalStorage(), TableLayout(str(tmp_path)))
    assert past.ids() == [] and past.latest_id() is None
    assert past.commit(SCHEMA) and past.commit(replace(SCHEMA, id=1, time_millis=6))
    assert not past.commit(replace(SCHEMA, time_millis=7)), "somebody else took the id"
    assert past.ids() == [0, 1]
    assert past.latest().time_millis == 6 and past.get(0) == replace(SCHEMA, options=past.get(0).options)


def test_a_directory_without_schema_is_no_table(tmp_path: Path) -> None:
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
