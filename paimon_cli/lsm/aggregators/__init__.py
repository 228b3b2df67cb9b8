"""Aggregate functions of columns: an Arrow column and its history give one value per key."""
