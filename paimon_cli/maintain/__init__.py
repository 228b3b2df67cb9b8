"""Maintenance of a table's past: which snapshots may go, and the files that go with them."""
