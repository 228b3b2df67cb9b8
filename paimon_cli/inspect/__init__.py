"""Reports about tables: files, trees, versions, advice, health."""
