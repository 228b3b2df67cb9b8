"""Programs that hold tables of ours against another implementation of the format, which their arguments name."""
