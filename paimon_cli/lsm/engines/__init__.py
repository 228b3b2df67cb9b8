"""The merge engines, one module each, named as the value of the option `merge-engine` (`options/merge_engines`)."""
