"""What a simulation explores: a table as it is at the beginning, jobs that run at once, and what may befall them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from paimon_cli.datatypes.field_types import DataField, parse_type
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions

if TYPE_CHECKING:
    from tests.simulation.actor import Job
    from tests.simulation.oracle import Memory

ROOT = "/warehouse/db.db/t"


@dataclass(frozen=True)
class Scenario:
    """`jobs[i]` is what actor i does. `files_vanish`: there is an expiry, so reads of any file must be interleaved."""

    name: str
    jobs: tuple[Job, ...]
    table_options: Mapping[str, str] = field(default_factory=dict)
    files_vanish: bool = False
    every_call_waits: bool = False
    """Without any reduction: what only the actor itself can notice is interleaved, too."""
    faults: tuple[str, ...] = ()
    most_faults: int = 0
    most_restarts: int = 0
    tolerates: frozenset[str] = frozenset()
    """Codes of violations that this scenario is known to have."""
    value_type: str = "STRING"
    real_files: bool = False
    """Data files are Parquet and not on paper."""
    beginning: Mapping[str, bytes] | None = None
    memory: Memory | None = None
    """What the oracle knows at the beginning."""
    first_name: int = 0
    """Makes the names of this scenario's actors different from those of the actors that set it up."""

    @cached_property
    def layout(self) -> TableLayout:
        return TableLayout(ROOT)

    @cached_property
    def schema(self) -> TableSchema:
        fields = (DataField(0, "k", parse_type("INT NOT NULL")), DataField(1, "v", parse_type(self.value_type)))
        options = {"bucket": "2", "file.format": "parquet", **self.table_options}
        return TableSchema(0, fields, len(fields) - 1, (), ("k",), options, None, 0)

    @cached_property
    def options(self) -> TableOptions:
        return TableOptions(self.schema.options)

    @cached_property
    def files(self) -> Mapping[str, bytes]:
        if self.beginning is not None:
            return self.beginning
        return {self.layout.schema(0): self.schema.to_json().encode()}

    def after(self, setup: Sequence[Job]) -> Scenario:
        """The same scenario on a table to which these jobs were done before, one after the other."""
        from tests.simulation.run import Run

        run = Run(replace(self, jobs=tuple(setup), faults=(), most_faults=0, first_name=900))
        for actor in run.actors:
            while actor.waits:
                run.take(next(step for step in run.choices() if step.actor == actor.number))
        assert not run.violations, run.violations
        return replace(self, beginning=dict(run.disk.files), memory=run.oracle.memory)
