"""Staged writes: what writers leave for a commit, and the process that commits it."""
