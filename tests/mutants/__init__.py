"""Planted bugs: `make mutants` takes one guard away at a time, and sees who notices (H43)."""
