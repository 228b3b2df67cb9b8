"""Bytes <-> objects, one module per kind of file; no I/O."""
