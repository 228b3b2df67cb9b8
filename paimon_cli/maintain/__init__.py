"""Removing old versions of a table, and the files that only they need."""
