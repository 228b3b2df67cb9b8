"""Real processes on real storage, killed at any moment: what was acknowledged is there, once, and every read adds up."""
