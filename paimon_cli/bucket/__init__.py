"""The files of one bucket: rows -> data files, data files -> rows, merged rows."""
