"""Compaction phase: plan buckets, run one bucket's compaction, hand over commit messages."""
