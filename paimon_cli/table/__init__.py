"""The front door of one table: where it lives, how it is created, what is asked of it."""
