"""Compaction: planning buckets, and running the compaction of one bucket, which returns a commit message."""
