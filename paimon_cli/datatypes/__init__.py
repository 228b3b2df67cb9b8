"""Values and keys: types, casts, BinaryRow bytes, bucket hash, partition directories, order of keys. Pure."""
