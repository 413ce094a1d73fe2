"""Local files that a plugin or its client reads, writes, shares and cleans up."""
