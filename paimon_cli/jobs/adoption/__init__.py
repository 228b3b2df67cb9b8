"""`adopt`: files that other engines wrote become an append table, without being rewritten."""
