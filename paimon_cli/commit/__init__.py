"""The commit phase: turns commit messages into snapshots, each exactly once, alongside any other writers."""
