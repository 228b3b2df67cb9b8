"""The table's past and present on storage: snapshots, schemas, manifests, and the files of each bucket."""
