"""The commit phase: turns commit messages into snapshots, each exactly once, beside any other writers."""
