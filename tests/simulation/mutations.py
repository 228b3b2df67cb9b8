"""All planted bugs. A search must find each of them, else its silence about the shipped code would prove nothing."""

from __future__ import annotations

from tests.simulation import (
    append_mutations,
    commit_mutations,
    job_mutations,
    kind_mutations,
    rewrite_mutations,
    source_mutations,
    store_mutations,
    vector_mutations,
)
from tests.simulation.mutation import PLANTED, Mutation

MODULES = (
    *(append_mutations, commit_mutations, job_mutations, kind_mutations),
    *(rewrite_mutations, source_mutations, store_mutations, vector_mutations),
)
"""Importing them fills the list."""

MUTATIONS: tuple[Mutation, ...] = tuple(PLANTED)
