"""Simulation of concurrent jobs: a simulated storage, actors, a scheduler and an oracle."""
