"""Concurrency scenarios, reproduced step by step on the shipped code."""
