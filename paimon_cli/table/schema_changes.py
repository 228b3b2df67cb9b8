"""What `alter` can be asked for: one value per kind of change (Java SchemaChange)."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.datatypes.data_type import DataType

Path = tuple[str, ...]
"""A column, or a field inside of one: names of ROW fields, `element` of ARRAY and MULTISET, `value` of MAP."""


@dataclass(frozen=True)
class Position:
    """Behind `after`; to the front where that is None."""

    after: str | None = None


@dataclass(frozen=True)
class SetOption:
    key: str
    value: str


@dataclass(frozen=True)
class UnsetOption:
    key: str


@dataclass(frozen=True)
class SetComment:
    """Of the table; None takes it away."""

    comment: str | None


@dataclass(frozen=True)
class AddColumn:
    path: Path
    type: DataType
    comment: str | None = None
    default: str | None = None
    position: Position | None = None


@dataclass(frozen=True)
class DropColumn:
    path: Path


@dataclass(frozen=True)
class RenameColumn:
    path: Path
    name: str


@dataclass(frozen=True)
class AlterColumn:
    """Everything that is None stays as it is; an empty `comment` takes the comment away, `drop_default` the default.

    `type` changes the type and leaves alone whether null is allowed, which `nullable` says.
    """

    path: Path
    type: DataType | None = None
    nullable: bool | None = None
    comment: str | None = None
    default: str | None = None
    drop_default: bool = False
    position: Position | None = None


SchemaChange = SetOption | UnsetOption | SetComment | AddColumn | DropColumn | RenameColumn | AlterColumn
