"""Metadata that was decoded once is remembered while a module of simulations runs."""

from __future__ import annotations

from tests.simulation.conftest import _quick_metadata as _quick_metadata
