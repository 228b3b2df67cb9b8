"""Every interleaving of the shipped commit code: a simulated storage, a scheduler, an oracle, and planted bugs."""
