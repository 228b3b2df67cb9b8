"""Concurrency scenarios, reproduced step by step: on the shipped code, and on a model of deletion vectors."""
