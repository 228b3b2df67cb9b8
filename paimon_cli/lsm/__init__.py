"""Pure algorithms of one bucket: sorted runs, what to compact, how to merge. No I/O."""
