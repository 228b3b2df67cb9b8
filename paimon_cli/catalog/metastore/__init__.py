"""Catalogs with one interface: file systems, JDBC databases, Hive metastores and REST servers."""
