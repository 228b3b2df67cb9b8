"""Finding, creating and altering tables."""
