"""Reports about tables: files, LSM trees, versions, advice, health."""
