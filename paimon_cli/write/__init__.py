"""Write phase: incoming rows -> (partition, bucket) -> sorted level-0 files -> commit messages."""
