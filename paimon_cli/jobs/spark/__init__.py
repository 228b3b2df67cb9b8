"""Spark: its session, jobs and errors, and the write as a shuffle."""
