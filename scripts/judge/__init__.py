"""Programs that compare our tables with other implementations of the format, which their arguments name."""
