"""The options of commands, each declared once: the command line, the library's keywords and the jobs take them from here."""
