"""What copies, trims and cleans the partitions that this node leads."""
