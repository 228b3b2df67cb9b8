"""paimon-cli: a table manager for Apache Paimon tables with a storage engine of its own."""

__version__ = "0.1.0"
