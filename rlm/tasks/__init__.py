"""The tasks that copy, trim and clean up the partitions that this node leads."""
