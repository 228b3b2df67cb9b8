"""Aggregate functions, which combine the values of a column into one value per key."""
