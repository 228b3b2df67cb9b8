"""Interleavings of the shipped commit code: a simulated storage, actors, a scheduler, and an oracle."""
