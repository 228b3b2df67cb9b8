"""The catalogs: file systems, JDBC databases, Hive metastores and REST servers, behind one interface."""
