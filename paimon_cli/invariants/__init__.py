"""One definition of a correct table: named checks over snapshots that give violations with stable codes."""
