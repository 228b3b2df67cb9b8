"""The library: a table as an object, each command of the command line as a method of the same name."""
