"""The library: tables and catalogs as objects, with the commands of the command line as methods of the same names."""
