"""A compactor that is none of ours: it lifts one file, as a plan by other rules might."""

from __future__ import annotations

from paimon_cli.commit.commit_messages import removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.history.live_files import bucket_files
from paimon_cli.lab.simulation.actor import Actor, Job
from paimon_cli.lab.simulation.actor_jobs import end_of
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, CommitMessage, FileChanges


def upgrader(place: int) -> Job:
    """Lift one level-0 file of bucket 0, as a compaction by another plan than ours might; the metadata alone changes."""

    def run(actor: Actor) -> None:
        context = actor.context
        snapshot = context.snapshots.latest()
        assert snapshot is not None
        files = sorted(bucket_files(context, snapshot)[BucketId(EMPTY_ROW, 0)].files, key=lambda file: file.file_name)
        lifted = [file for file in files if file.level == 0][place : place + 1]
        message = CommitMessage(
            EMPTY_ROW,
            0,
            context.options.bucket,
            compact=FileChanges(
                removed=tuple(lifted), added=tuple(file.upgraded(context.options.num_levels - 1) for file in lifted)
            ),
            read_snapshot_id=snapshot.id,
        )

        def commit() -> None:
            with removed_on_refusal(context, [message]):
                Committer(context).commit([message], fresh_identity(context))

        end_of(actor, commit)

    return run
