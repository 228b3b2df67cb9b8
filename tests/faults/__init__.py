"""Every storage call of every operation fails once, in every way that a storage can fail: the guarantees must still hold."""
