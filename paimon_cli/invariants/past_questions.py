"""The questions about rows that a history raises, and their answers. Plain data, so that an engine can answer many at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from paimon_cli.errors import DamagedFile, NotFound, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.anomalies import Anomaly
from paimon_cli.invariants.key_places import KeysOfBuckets, RowsElsewhere
from paimon_cli.invariants.past_rows import RewrittenBucket, SharedKeys
from paimon_cli.invariants.past_vectors import IfHeld, ReplacedVectors
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.pieces import PIECES
from paimon_cli.sql.predicate import Predicate


@dataclass(frozen=True)
class CompactionChain:
    """The same for compactions of a bucket between which only level-0 files were added: first for all of them together.

    Only if they change what readers see, each is looked at. So each file is read once, not once for each compaction of it.
    """

    members: tuple[RewrittenBucket, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        return self.members[0].rules

    @property
    def together(self) -> RewrittenBucket:
        """The first state, with all that was added since, and the last one."""
        first, last = self.members[0], self.members[-1]
        added = [file for one, other in pairwise(self.members) for file in other.added_since(one) or ()]
        before = replace(first.before, files=(*first.before.files, *added))
        return replace(first, before=before, after=last.after)

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return self.together.files

    def answer(self, context: TableContext, where: Predicate | None) -> Iterator[Anomaly]:
        if any(self.together.answer(context, where)):
            for member in self.members:
                yield from member.answer(context, where)

    def untold(self, context: TableContext, why: str) -> Iterator[Anomaly]:
        for member in self.members:
            yield from answered(context, None, member)


def in_groups(questions: Sequence[Question]) -> list[Question]:
    """The questions of a long history, with compactions of a bucket that follow each other as one.

    A change that a later commit of the same group has overwritten is then not seen, so short histories stay as they are.
    """
    if len(questions) <= PIECES.compactions_one_by_one:
        return list(questions)
    result: list[Question] = []
    chains: dict[BucketId, list[RewrittenBucket]] = {}

    def end(bucket_id: BucketId) -> None:
        chain = chains.pop(bucket_id, [])
        result.extend(chain if len(chain) < 2 else [CompactionChain(tuple(chain))])

    for question in questions:
        if not isinstance(question, RewrittenBucket):
            result.append(question)
            continue
        bucket_id = question.before.bucket_id
        chain = chains.get(bucket_id, [])
        if chain and (len(chain) >= PIECES.compactions_together or question.added_since(chain[-1]) is None):
            end(bucket_id)
        chains.setdefault(bucket_id, []).append(question)
    for bucket_id in list(chains):
        end(bucket_id)
    return result


Question = SharedKeys | RewrittenBucket | CompactionChain | RowsElsewhere | KeysOfBuckets | ReplacedVectors | IfHeld


def answered(context: TableContext, where: Predicate | None, question: Question) -> list[Anomaly]:
    """The findings of a question, on an engine. `where`: only keys that match. Damage is no error: `verify` reports it."""
    try:
        return list(question.answer(context, where))
    except (DamagedFile, NotFound, NotSupported) as error:
        return list(question.untold(context, str(error)))
