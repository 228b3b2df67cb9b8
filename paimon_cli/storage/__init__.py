"""The only room that touches filesystems, clocks and random names."""
