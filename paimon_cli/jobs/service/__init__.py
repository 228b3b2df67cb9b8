"""The compaction service: rounds over tables, leases, metrics."""
