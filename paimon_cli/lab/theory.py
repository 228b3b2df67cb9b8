"""What `lab explain` says about each case: the mechanism in a paragraph, and what Delta Lake, Hudi and Iceberg do about it.

Checked against the sources of August 2026: Delta Lake 4.4 (`ConflictChecker`, `isolationLevels`, `LogStore`), Iceberg
(`MergingSnapshotProducer`, `BaseRewriteFiles`, `BaseRowDelta`, `HiveTableOperations`), Hudi and its documentation up to 1.2
(concurrency control, record merger, RFC-91, `SimpleConcurrentFileWritesConflictResolutionStrategy`), and Paimon 2.0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Theory:
    """A paragraph about a mechanism, and its counterpart in each of the other table formats."""

    theory: str
    delta_lake: str
    hudi: str
    iceberg: str


_OPTIMISTIC = Theory(
    "A commit is a file, snapshot-N, that is created only if it does not exist yet. The loser of the race for a "
    "number has lost nothing but its manifest lists: it reads the winner's snapshot, checks that its own changes "
    "still fit, writes the lists again and puts snapshot-N+1. Data files are not touched. Paimon calls this a "
    "snapshot conflict; commit.max-retries and commit.timeout bound it.",
    "optimistic concurrency control: writers race for the next file of _delta_log; the loser checks the winner's "
    "actions (ConflictChecker) and tries the next number",
    "hoodie.write.concurrency.mode=optimistic_concurrency_control: a lock provider serialises the end of each commit "
    "on the timeline; the default, single_writer, takes no lock",
    "optimistic concurrency: the catalog swaps the pointer to the table's metadata file atomically; the loser gets "
    "CommitFailedException and tries again, 4 times by default (commit.retry.num-retries)",
)
_FILES = Theory(
    "A compaction removes the files that it has merged. If one of them is no longer live when it commits, another job "
    "has merged the same rows, and publishing both results would double rows or bring deleted ones back. So the "
    "commit is abandoned and its files are deleted: a files conflict, which no retry of the commit can mend. The job "
    "has to plan again on the latest snapshot.",
    "ConcurrentDeleteDeleteException, or for a file that was also read ConcurrentDeleteReadException: two "
    "transactions, such as two OPTIMIZE runs, removed the same file; OPTIMIZE tries again only if its files are still there",
    "compactions are planned on the timeline, and a file group that is in a pending compaction or clustering is left "
    "out of the next plan",
    "ValidationException of the rewrite (rewrite_data_files): a file to be replaced is missing from the current snapshot",
)
_LOST_UPDATE = Theory(
    "A read-modify-write is right only if no other job has changed the row between its read and its commit. Paimon's "
    "own commit does not know what a job has read, so both writers commit and the second one hides the first: a lost "
    "update. The data conflict check compares what was written since the job's read snapshot, by partition, bucket, "
    "key range or key, and refuses the second commit; the job reads again. Partial-update helps if the writers change "
    "different columns, never if they change the same one.",
    "ConcurrentDeleteReadException if a file that was read is gone, ConcurrentAppendException if files were added in "
    "partitions that were read; tables of the open-source version have the isolation level Serializable",
    "optimistic concurrency control compares the file groups that both commits wrote, and fails the second one with "
    "HoodieWriteConflictException",
    "write.update.isolation-level (also delete, merge; default serializable): ValidationException if there are new "
    "delete files, or new data files that may hold rows of the same filter; a deletion vector that both add for one "
    "data file is always refused",
)
_DISORDER = Theory(
    "For each key the row with the highest sequence number wins. A writer numbers its rows from the highest number "
    "that it has seen in the bucket, so writers of one bucket that have not seen each other use the same numbers, and "
    "the order of the commits decides nothing. Cures: a writer per bucket; sequence.field, which orders rows by one "
    "of their columns; sequence.snapshot-ordering, which orders them by snapshot first; or the data conflict check, "
    "after which the refused writer writes again with higher numbers.",
    "no counterpart: rows have no order of their own; MERGE rewrites files or marks rows, and conflicting "
    "transactions are refused",
    "the ordering fields (before 1.1: precombine field) decide which version of a record wins; without them commit "
    "time does (hoodie.record.merge.mode)",
    "the data sequence number is assigned at commit, so a later commit is newer; an equality delete applies to data "
    "files of lower numbers only",
)
_TOPOLOGY = Theory(
    "Paimon separates the write phase (data files that no reader sees) from the commit phase (one snapshot). If each "
    "bucket has one writer, it does not matter who commits: sequence numbers cannot overlap, no compaction meets "
    "another, and commits of different buckets only race for the number of a snapshot. This is what a Flink sink "
    "guarantees by its shuffle, and what several jobs have to arrange by themselves.",
    "disjoint partitions: transactions whose predicates name different partitions do not conflict",
    "disjoint file groups: commits that wrote different ones do not conflict, and with the bucket index the hash of "
    "the key fixes the group",
    "appends never conflict with each other: each adds manifests of its own",
)
_DEDICATED = Theory(
    "A commit that only adds files at level 0 cannot have a files conflict, because it removes nothing. If all "
    "writers are write-only and exactly one job compacts, no job ever deletes a file that another one is about to "
    "delete, and nothing fails. The price is paid by readers, which merge more runs until the compactor has run.",
    "OPTIMIZE as a separate job: it only rearranges rows (dataChange=false), so it does not conflict with appends; with "
    "UPDATE, DELETE and MERGE of the same files it does",
    "asynchronous table services: hoodie.compact.inline=false, and a separate compaction job",
    "maintenance jobs (rewrite_data_files) beside writers that append, or that add equality deletes as Flink does: "
    "the rewritten files keep the old sequence number (use-starting-sequence-number)",
)
_VECTORS = Theory(
    "A deletion vector says which rows of a data file are superseded by rows in other files. A compaction of level 0 "
    "marks rows of higher levels in files that it does not itself rewrite, so two compactions of disjoint files still "
    "depend on each other: the vectors of one must be those that the other has read, and the marked file must still "
    "be there. A check of data files alone misses both, and Java makes no other in tables with a primary key. The "
    "shipped commit refuses a job if vectors that it has read, or files that it marks or removes, have changed since.",
    "deletion vectors: a vector is a part of its file's entry in the log; changing it removes the old entry, so two "
    "transactions that change the vector of one file conflict",
    "no vectors in base files: a file slice has one base file and its log files, and a file group one pending "
    "compaction at a time",
    "deletion vectors (format v3) and position deletes: a rewrite is refused if others have committed new ones for "
    "the rewritten files, and a vector if another was added for its file",
)
_PUT = Theory(
    "The whole protocol rests on one operation: create a file only if it does not exist. HDFS and most file systems "
    "rename atomically, S3, GCS and Azure have conditional puts. Where neither exists, a look followed by a write "
    "leaves a gap in which another commit is overwritten, although both were acknowledged. The remedies are a lock "
    "around look and write, or a single writer. paimon-cli tests the store, and commits are refused (exit 7) "
    "if it has neither.",
    "mutual exclusion of the LogStore; for S3, S3DynamoDBLogStore records each log entry in DynamoDB, with a condition",
    "the lock provider: ZooKeeper, Hive metastore, DynamoDB, or since 1.0.2 a lock file on the storage, written with "
    "conditional puts",
    "the catalog's compare-and-swap (Hive, JDBC, REST); the Hadoop catalog relies on an atomic rename, and may add a "
    "lock manager",
)
_OLDER_BELOW = Theory(
    "A lookup goes through the levels from top to bottom and takes the first row of a key that it finds, so a newer "
    "row must never lie below an older one. One compaction that takes the newer file to a deep level, while another "
    "takes the older file to a level above it, break that order without touching a common file. The shipped commit "
    "refuses a compaction if files have appeared at levels above 0 since it read the bucket.",
    "no counterpart: there are no levels",
    "no counterpart: a file slice has one base file, and its log files are newer",
    "no counterpart: the order is that of sequence numbers, not of places",
)
_CRASH = Theory(
    "A job may die at any call. Before snapshot-N is put its files are invisible orphans, afterwards the commit is "
    "complete: there is no state between. A repeated job is recognised by its identity, the commit user and the "
    "commit identifier in the snapshot, so it publishes exactly once.",
    "the txn action (in Spark the options txnAppId, txnVersion) makes a write idempotent; VACUUM removes files that "
    "the log does not name",
    "an instant that stays inflight is rolled back; marker files name the data files that it has begun",
    "the Flink sink stores its job id and flink.max-committed-checkpoint-id in the snapshot summary; "
    "remove_orphan_files removes the rest",
)
_RESTARTS = Theory(
    "Two streaming jobs that write and compact the same buckets conflict at nearly every checkpoint: the one that "
    "commits second finds that the files which it compacted are gone. A Flink job answers a files conflict by "
    "restarting from its last checkpoint, while the other one commits, so that the first conflicts again: a livelock "
    "in which each keeps restarting the other. The cure is to take the compaction out of the writers "
    "(write-only=true) and to run one dedicated compaction job.",
    "a streaming MERGE whose files OPTIMIZE keeps replacing (ConcurrentDeleteReadException). MERGE removes files "
    "itself, so a separate job is no cure: both need partitions of their own, or must take turns",
    "livelock of writers under optimistic concurrency control; non-blocking concurrency control (since 1.0) lets them "
    "write log files of one file group, and the compaction resolves the conflict",
    "a rewrite_data_files that fails with ValidationException beside row-level deletes; validation errors are not "
    "retried, and partial-progress.enabled saves the finished part",
)
_DYNAMIC = Theory(
    "With dynamic buckets the hash index of a partition says in which bucket each key lives, and a writer chooses a "
    "bucket for a key that it does not find there. Two writers that read the same index may put one new key into two "
    "buckets. Buckets are never merged with each other, so from then on readers see the key twice, and no compaction "
    "mends it. Paimon's documentation therefore allows one writing job per partition; Java does not enforce it. The "
    "shipped commit refuses a job if the latest snapshot has other indexes than it has read (exit 5); the job assigns "
    "its rows again.",
    "no counterpart: rows have no fixed place; two MERGE of one new key conflict instead (ConcurrentAppendException)",
    "an index maps a key to its file group. It is written under the table's lock, but keys are looked up before: with "
    "several writers INSERT might leave duplicates, says the documentation. With the bucket index the hash decides, "
    "and commits to one bucket conflict",
    "no counterpart: keys are not enforced, and two appends of one key stay two rows",
)
_LOCK = Theory(
    "A lock in a database expires, so that a dead holder does not stop all others. So a holder that sleeps between its "
    "last look and its write (a long garbage collection, a suspended machine) may wake up when another one holds the "
    "lock, and overwrite its snapshot. Looking at the lock right before the write makes the window small, but cannot "
    "close it. A conditional put closes it, because the store itself refuses the late write; the other known cure, a "
    "fencing token, needs a store that checks tokens.",
    "S3DynamoDBLogStore needs no lock: the first to record the number in DynamoDB owns it, and a later one fails",
    "a lock is renewed by a heartbeat and expires (RFC-91: after 5 minutes without one). A writer whose renewal fails "
    "cannot be stopped from outside, so the same window is left",
    "the Hive lock has a heartbeat. If it turns out to be lost after the commit, the outcome is unknown "
    "(CommitStateUnknownException). With engine.hive.lock-enabled=false the metastore compares instead",
)
_PRESSURE = Theory(
    "Each flush adds a sorted run, and reads merge all runs of a bucket. num-sorted-run.stop-trigger is the number of "
    "runs at which a writer that compacts has to wait for its compaction: reads stay bounded, and writes slow down to "
    "the pace of the compactions. A write-only writer never waits, so beside a compactor that is too slow the runs "
    "grow without a bound, and only readers notice.",
    "no counterpart: small files accumulate until OPTIMIZE or auto compaction runs",
    "inline compaction after hoodie.compact.inline.max.delta.commits delta commits (5) makes the writer wait; with "
    "asynchronous compaction log files accumulate",
    "no counterpart: files and deletes accumulate until rewrite_data_files runs",
)

THEORIES = {
    "single-committer": _TOPOLOGY,
    "topology-1": _TOPOLOGY,
    "topology-2": _DISORDER,
    "snapshot-conflict": _OPTIMISTIC,
    "files-conflict": _FILES,
    "write-only": _DEDICATED,
    "merge-disorder": _DISORDER,
    "snapshot-ordering": _DISORDER,
    "lost-update-columns": _LOST_UPDATE,
    "lost-update-counter": _LOST_UPDATE,
    "lost-deletion-vectors": _VECTORS,
    "dangling-deletion-vectors": _VECTORS,
    "older-row-below": _OLDER_BELOW,
    "restart-loop": _RESTARTS,
    "back-pressure": _PRESSURE,
    "dynamic-bucket-race": _DYNAMIC,
    "crash": _CRASH,
    "unsafe-rename": _PUT,
    "no-put-if-absent": _PUT,
    "lost-lock": _LOCK,
}
