"""The command line: the only room that prints, and the only one that knows Typer and Rich."""
