"""Paimon's casts between column types: which are allowed, and what they make of values."""
