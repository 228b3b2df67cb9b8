"""Values and keys: types, BinaryRow bytes, bucket hash, partition directories, order of keys. Pure."""
