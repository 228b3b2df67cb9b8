"""Runs the work of a table on an engine: plan, tasks, commit. Only this room knows Spark."""
