"""Spark: sessions, jobs, errors, and the shuffle of a write."""
