"""The read phase: which snapshot, which files, which rows. Reads only."""
