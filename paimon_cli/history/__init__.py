"""The history of a table on storage: snapshots, schemas, manifests, and the live files of each bucket."""
