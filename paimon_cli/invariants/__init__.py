"""The definition of a correct table: named checks of snapshots, whose violations have stable codes."""
