"""Input files as rows of a table."""
