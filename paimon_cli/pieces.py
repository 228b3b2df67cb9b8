"""The sizes of the pieces into which work is cut: the one place where they are defined, and where tests set others.

Code reads `PIECES.NAME` when it needs a size, so that a test can make all pieces small: then a table of twenty rows has many
batches, row groups, pages and portions. Only tests set sizes; no option, environment variable or table does.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, repr=False, eq=False)
class Pieces:
    """How much is done, held or fetched at a time. Only speed, memory and the layout of files depend on these numbers."""

    # Rows of data files
    batch_rows: int = 65_536
    """Rows that are decoded and processed at a time."""
    smallest_batch_rows: int = 512
    """Rows of a batch of a merge, however little memory there is for it."""
    sliced_lookups: int = 64
    """Numbers that are looked for in bit slices one by one; more are compared with the numbers of all rows."""
    kind_batch_rows: int = 1 << 20
    """Rows of a batch of which only the row kinds are read."""
    orc_batch_rows: int = 1_024
    """Rows that are encoded as ORC at a time."""
    avro_block_rows: int = 2_000
    """Rows of a block of an Avro data file."""
    avro_encoded_blocks: int = 8
    """Blocks of an Avro data file that are encoded together."""
    row_group_bytes: int = 32 << 20
    """Arrow bytes of a row group: what a writer holds in memory."""
    least_group_bytes: int = 2 << 20
    """The same for a writer that shares its memory with others, which write at the same time."""
    encoded_bytes: int = 4 << 20
    """Arrow bytes that are encoded as ORC or Avro at a time, and are held until then."""
    orc_stripe_bytes: int = 16 << 20
    """Bytes that pyarrow's ORC writer holds back; until they reach the file, rolling by file size does not count them."""
    dictionary_sample_rows: int = 32_768
    """Enough rows to see whether a column repeats a few thousand texts."""
    page_rows: int = 20_000
    """Rows of a Parquet page: the default of Parquet's Java writer."""
    lookup_page_rows: int = 4_096
    """Rows of a Parquet page in tables that look keys up. Pages this small make full scans 10 to 15 % slower."""
    read_buffer_bytes: int = 256 << 10
    """Compressed bytes of a column of a Parquet file in memory, if other files are open at the same time."""
    row_groups_ahead_bytes: int = 16 << 20
    """Compressed bytes of all columns of a Parquet file in memory, if it is read alone. With whole column chunks in memory a scan
    takes 15 % less time."""
    max_dictionary_bytes: int = 64 << 10
    """Texts are decoded as dictionary indices if their dictionary is this small (compressed)."""
    min_encoded_rows: int = 8_192
    """Texts are decoded as dictionary indices if batches, and what is read of a file, have this many rows."""
    files_ahead: int = 16
    """How many files ahead of the current one are announced, where files are read one after the other."""
    orc_read_bytes: int = 256 << 10
    """Bytes of an ORC file that the decoder asks for at a time."""
    pipe_bytes: int = 1 << 20
    """Bytes that are passed to the decoder's process at a time."""

    shredded_cells: int = 1 << 20
    """Rows times columns of a shredded MAP that are placed at a time."""
    shredded_keys_bytes: int = 16 << 20
    """Bytes of the names of keys of a shredded MAP, above which the next file begins."""
    variant_bytes: int = 1 << 20
    """Bytes of VARIANT values that are decoded at a time, which takes up to a hundred times as much memory."""
    shape_nodes: int = 512
    """Nodes of VARIANTs that have one shape, and are therefore converted together: fewer take longer than level by level."""

    # Merges and sorts
    run_batch_bytes: int = 1 << 20
    """Decoded bytes that each run of a merge may hold. With fewer, a read of a large and a small run takes a third longer."""
    compacted_batch_bytes: int = 1 << 20
    """Decoded bytes that the runs of a compaction may hold together. It encodes the rows again, beside which pieces of a few
    thousand rows cost little."""
    least_run_batch_bytes: int = 256 << 10
    """Decoded bytes that each run of a compaction may hold, however many runs there are."""
    run_column_bytes: int = 32 << 10
    """Decoded bytes of each column that each run may hold, if these are more: less is dominated by fixed costs of each column."""
    merge_bytes: int = 192 << 20
    """Decoded bytes that all runs of a merge may hold together."""
    min_run_bytes: int = 3 << 20
    """Memory that an open run needs at least, for its batch and for pages in the reader."""
    min_merged_runs: int = 8
    """Runs that are merged at a time, however little memory there is."""
    max_merged_runs: int = 32
    """Spilled runs that a sort merges at a time."""
    merged_piece_bytes: int = 8 << 20
    """Arrow bytes that are merged at a time from runs in memory."""
    merged_piece_rows: int = 65_536
    """Rows that are merged at a time from runs in memory."""
    merged_at_once_bytes: int = 32 << 20
    """Arrow bytes that may be merged as one piece, which takes about four times as much memory."""
    merged_run_rows: int = 8_192
    """Rows that a run in memory has on average, below which all runs are merged as one piece."""
    samples_per_piece: int = 16
    """Keys that are sampled per piece, to cut runs in memory into pieces of about the same size."""
    spilled_batch_bytes: int = 2 << 20
    """Arrow bytes of a batch, of which a merge holds one per spilled run."""
    sort_bytes: int = 128 << 20
    """Bytes of rows to sort in memory at a time, not counting copies."""
    comparison_run_bytes: int = 96 << 20
    """The same in a comparison of two tables."""
    source_bytes: int = 128 << 20
    """Bytes of the source of a merge that are held in memory; the rows of a larger one are in files that are mapped."""
    indexed_rows: int = 1 << 21
    """Such rows that are sorted by their hashes at a time."""
    hash_scan_rows: int = 1 << 20
    """Hashes that are searched for those of a range at a time."""
    top_rows: int = 1 << 16
    """How many rows beyond a limit to collect before they are sorted and cut."""

    # Keys that are looked up
    footer_guess_bytes: int = 64 << 10
    """Bytes read from the end of a file, so that most footers take one request."""
    least_block_rows: int = 64
    """Row groups whose pages have fewer rows on average are read as a whole: comparing their bounds would take longer."""
    page_gap_bytes: int = 16 << 10
    """Gaps between pages up to this size are read, too, to save a request."""
    index_gap_bytes: int = 64 << 10
    """Gaps between page indexes up to this size are read, too, to save a request."""
    page_portion_bytes: int = 8 << 20
    """Decoded bytes of the rows of a portion."""
    key_piece_bytes: int = 16 << 20
    """Arrow bytes of keys that are searched at once."""
    dense_keys: int = 1_000
    """The whole file is read for at least this many keys or positions, if most of its blocks have one per `rows_per_key`."""
    rows_per_key: int = 2_048
    """See `dense_keys`."""
    looked_up_rows: int = 1 << 18
    """Rows whose keys are looked up at once. The more there are, the less often a page of an old file is read again."""
    looked_up_bytes: int = 32 << 20
    """Arrow bytes of the rows whose keys are looked up at once."""
    resolved_rows: int = 1 << 14
    """Rows of a compaction that looks up keys which are merged at a time if there is no file to look them up in."""
    lookup_piece_bytes: int = 8 << 20
    """Arrow bytes of looked-up rows that are merged and written at a time."""

    # Files that are copied
    stitched_whole_bytes: int = 4 << 20
    """A file up to this size is read with one request."""
    stitched_piece_bytes: int = 4 << 20
    """Bytes of larger files that are copied at a time."""
    min_group_bytes: int = 64 << 10
    """Minimum average size of the row groups of a writer's file to be copied."""
    min_compacted_group_bytes: int = 1 << 20
    """The same for files of compactions."""
    min_chunk_bytes: int = 2 << 10
    """Minimum average size of a column chunk, below which the footer would become too large."""
    copied_bytes: int = 8 << 20
    """Bytes of other files that each copying thread holds in memory."""

    # Hashes and buckets
    hash_block_rows: int = 1 << 16
    """Hashes processed at once where intermediate results should stay in the processor's cache."""
    max_merged_hashes: int = 1 << 20
    """Parts of this size are not merged any more: batches that large are searched through a table anyway."""
    hashes_per_range: int = 1 << 10
    """Pieces are merged range by range if a range has this many hashes of a piece on average."""
    hashed_rows: int = 1 << 15
    """Rows whose keys are hashed at a time, so that intermediate arrays fit into the processor's cache."""
    assigned_rows: int = 1 << 26
    """Maximum number of rows to assign at once. Sorting takes 8 bytes for each."""
    placed_bytes: int = 64 << 20
    """Bytes of spilled rows whose keys are looked up at once: a range of keys, so that few portions read the same page."""

    # Input
    read_ahead_bytes: int = 32 << 20
    """Arrow bytes that a write decodes ahead."""
    written_at_once_bytes: int = 1 << 20
    """Rows in memory from which on threads decode and sort them ahead: to start with fewer takes longer than it saves."""
    sort_ahead_bytes: int = 16 << 20
    """The largest batch whose rows are routed and sorted ahead, which takes as much memory again."""
    quote_piece_bytes: int = 1 << 18
    """Bytes of CSV whose quotes are examined at once; they fit the cache of a processor."""
    csv_block_bytes: int = 8 << 20
    """Bytes of CSV that are parsed at a time. Also the maximum length of a CSV row."""
    search_bytes: int = 512 << 10
    """Bytes of text in which line ends or keys are looked for at a time; they fit the cache of a processor."""
    search_sample_bytes: int = 64 << 10
    """Bytes of a block that show which bytes are rare."""
    event_block_bytes: int = 32 << 20
    """Text of events that is decoded at a time: enough that each of some hundred tables has a hundred rows."""
    event_block_rows: int = 1 << 18
    """Events that are decoded at a time, however short they are: bad ones are held one by one."""
    collected_bytes: int = 64 << 20
    """Rows of a batch of a stream that the driver of Spark writes itself: a job for each small table would take longer."""
    polled_messages: int = 10_000
    """Messages of Kafka that are taken at a time."""
    fetched_bytes: int = 64 << 20
    """Bytes of messages of Kafka that wait, if a quarter of the memory is more."""
    json_block_bytes: int = 8 << 20
    """Bytes of JSON lines that are parsed at a time."""
    text_read_bytes: int = 1 << 20
    """Bytes of a text file that are read at a time."""
    input_buffer_bytes: int = 1 << 20
    """Bytes that a reader of an input file holds."""
    arrow_split_bytes: int = 32 << 20
    """Bytes of Arrow data in memory that one task writes."""
    parquet_split_bytes: int = 32 << 20
    """Small enough that a few splits keep all tasks busy to the end, big enough that starting a task is cheap in comparison."""
    json_split_bytes: int = 64 << 20
    """Bytes of JSON lines that one task reads."""

    # Splits, tasks and rounds
    max_single_file_splits: int = 64
    """Up to this many files that need no merge are splits of their own, so that several readers can share a bucket."""
    splits_ahead_bytes: int = 256 << 20
    """Decoded bytes that may wait to be returned, for all splits together."""
    file_part_bytes: int = 16 << 20
    """The approximate size of parts into which files that need no merge are divided."""
    max_file_parts: int = 512
    """The most parts of a file, whatever size its metadata claims."""
    splits_per_reader: int = 8
    """With this many splits, readers stay busy without dividing them."""
    text_batch_bytes: int = 64 << 20
    """Bytes of rows that are turned into text at a time."""
    max_bucket_keys: int = 1_000
    """With more combinations of bucket-key values than this, hashing them rules out hardly any bucket."""
    least_shares: int = 32
    """Items share a task only as long as there are at least this many tasks, so that enough of them can run at a time."""
    routed_bytes: int = 16 << 20
    """Arrow bytes that a reader task on Spark collects before it cuts them into one chunk for each writer."""
    inserted_keys: int = 2_000_000
    """Keys of rows that a merge inserts from temporary files which a task compares at a time."""
    max_spark_partitions: int = 1_000
    """The greatest number of Spark tasks in a job; each costs about 30 ms."""
    shared_task_bytes: int = 32 << 20
    """Small tasks share a Spark task until they read this many bytes together."""
    least_task_bytes: int = 4 << 20
    """A task that reads less counts as this many bytes."""
    verified_task_bytes: int = 256 << 20
    """Bytes of the data files that one task checks."""
    verified_task_files: int = 500
    """Data files that one task checks."""
    compactions_together: int = 16
    """Compactions of a bucket in a long history whose effect is compared together."""
    compactions_one_by_one: int = 1_000
    """The questions of a history up to which each of its compactions is compared."""
    reclaimed_task_files: int = 5_000
    """Files that one task deletes."""
    copied_task_files: int = 500
    """Files that one task copies."""
    copied_task_bytes: int = 256 << 20
    """Bytes of the files that one task copies."""
    copied_versions_read: int = 64
    """Snapshots that are read before what they need is copied."""
    copied_portion_files: int = 50_000
    """Files that are copied before the versions which need them are, and the next ones planned."""
    erased_bytes: int = 4 << 30
    """Bytes of data files that an erasure writes again before it records that they are done."""
    deleted_files: int = 1_000
    """Files that are deleted together: what S3 takes in one request."""
    orphan_portion_files: int = 1_000
    """Orphans that are deleted and reported at a time."""
    needed_entries_kept: int = 200_000
    """Manifest entries that an expiry keeps for the next snapshot."""
    least_process_bytes: int = 128 << 20
    """Bytes of tasks that compute for which a process of its own is started."""
    least_thread_bytes: int = 1 << 20
    """Bytes of tasks that compute, in local files, for which a thread of its own is used."""
    key_range_bytes: int = 256 << 20
    """Bytes of a range of keys that a task compacts, in a bucket that is compacted in ranges."""
    least_groups_of_range: int = 8
    """Row groups of each smaller run that a range inside of a section has at least. The one at its beginning is decoded twice."""
    least_key_ranges: int = 8
    """Ranges of a bucket that is so small that it would have fewer of `key_range_bytes`."""
    turn_bytes: int = 1 << 30
    """Bytes that one table may compact in a round while other tables wait for their turn."""
    max_planned_files: int = 50_000
    """Files in plans kept for waiting turns; tables beyond this limit are planned again when their turn comes."""
    max_plans: int = 200
    """Plans kept for waiting turns."""
    packed_rounds: int = 5_000
    """Rounds of a ledger in one pack."""
    waiting_threads: int = 16
    """Threads of a process that wait for their next call; others end."""
    submitted_calls: int = 1_024
    """Calls in threads that are submitted at a time, before their results are consumed."""

    # Manifests and what is kept of them
    manifest_block_records: int = 200
    """Records per block of a manifest: few, so that even the blocks of one file can be decoded in parallel."""
    manifest_rolled_records: int = 1_000
    """A writer checks the size of its file after this many records, as Java does."""
    avro_decoded_bytes: int = 4 << 20
    """Bytes of blocks of an Avro data file that are decoded together."""
    avro_portion_bytes: int = 1 << 20
    """The same where all records are decoded at once, which takes about twenty times as much memory."""
    avro_lanes: int = 6
    """Blocks of equal length that are needed to decode their records side by side: with fewer it takes longer than one by one."""
    avro_buffer_bytes: int = 64 << 10
    """Bytes of an Avro file that are read at a time."""
    decoded_numbers: int = 8_192
    """Numbers of a manifest that are decoded at a time."""
    compared_entries: int = 4_096
    """Entries of which neighbours are compared at a time."""
    few_entries: int = 64
    """Up to this many entries are grouped without sorting."""
    min_column_blocks: int = 16
    """With fewer blocks than this, decoding record by record is as fast."""
    max_compared_objects: int = 256
    """Up to this many entries are compared as objects."""
    many_entries: int = 2_000
    """Of manifests with this many entries or more, only some partitions are read, and blocks without them are not decoded."""
    many_in_total: int = 200
    """The same limit if the manifests to be read have many entries in total."""
    entry_cache_bytes: int = 128 << 20
    """Bytes of manifest entries that are kept in memory."""
    entry_cache_objects: int = 5_000
    """Entries that are kept as objects."""
    entry_cache_keys: int = 100_000
    """Buckets whose entries are kept."""
    cached_lists: int = 8
    """Manifest lists that are kept in memory, so that each is fetched from a store only once."""
    cached_manifest_bytes: int = 8 << 20
    """Bytes of manifests that are kept in memory for the same reason."""
    manifest_group_bytes: int = 12 << 20
    """Bytes of manifests that are decoded at once. Decoded, they take about 20 times as much."""
    max_sequential_manifests: int = 4
    """Up to this many manifests of a local table are read one after the other."""
    cached_partitions: int = 64
    """A commit that changes more partitions than this does not cache their entries for the next commit."""
    max_walked_snapshots: int = 32
    """The number of snapshots after a stale hint that are probed one by one before the directory is listed instead."""
    kept_content_bytes: int = 64 << 20
    """Bytes of metadata files that a process keeps."""
    kept_fact_bytes: int = 64 << 20
    """Bytes of decoded footers and the like that a process keeps."""
    kept_copy_bytes: int = 4 << 30
    """Bytes of copies on local disk that a process keeps."""
    replayed_rounds: int = 3_000
    """Of how many buckets the history is replayed with other options: buckets times commits is at most this."""
    compared_rounds: int = 600
    """The same where merges by reads are compared with the triggers of a table, which a service does by itself."""

    # Storage and servers
    hive_batch_tables: int = 300
    """Tables that a Hive metastore is asked for at a time."""
    socket_bytes: int = 65_536
    """Bytes that are read from or written to a connection at a time."""
    listed_objects: int = 1_000
    """Objects that are listed at a time."""
    entries_between_checks: int = 4_096
    """Entries of a directory after which a long listing checks whether there is time left for it."""
    upload_part_bytes: int = 8 << 20
    """Size of the parts of an upload. Stores accept at least 10,000 parts, so files of 80 GB are possible."""
    sent_bytes: int = 64 << 20
    """Limit for uploads in progress."""
    prefetched_bytes: int = 32 << 20
    """Limit for prefetched files that have not been opened."""
    request_bytes: int = 8 << 20
    """Maximum size of a request for a range of bytes."""
    request_ahead_bytes: int = 32 << 20
    """Maximum number of bytes fetched ahead of the reader."""
    hole_bytes: int = 256 << 10
    """Gaps up to this size are read too, because that is cheaper than another request."""
    tail_bytes: int = 64 << 10
    """Minimum size of a read at the end of the file; most footers are smaller."""
    whole_file_bytes: int = 1 << 20
    """Files up to this size are fetched as a whole, even if only a part is needed."""
    least_read_bytes: int = 256 << 10
    """Minimum size of a read that was not announced."""
    write_buffer_bytes: int = 64 << 10
    """Combines the small writes of file formats, such as the header before each Parquet page."""
    max_unsynced_files: int = 64
    """Limit for new files that are being synced in the background, which have open descriptors."""


PIECES = Pieces()
"""The sizes that this process uses."""
