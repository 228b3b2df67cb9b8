"""The commit phase: turns commit messages into snapshots, once each, whoever else is writing."""
