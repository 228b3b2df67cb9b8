"""Every storage call of every operation goes wrong once, in every way a storage can: what must still hold, holds."""
