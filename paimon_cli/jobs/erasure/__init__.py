"""`erase`: removes keys or rows from all that a table stores, its history included, and proves it."""
