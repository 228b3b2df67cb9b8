"""Run a table's work on an engine: plan, tasks, commit. Only this room knows Spark."""
