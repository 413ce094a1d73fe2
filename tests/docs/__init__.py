"""Docs that cannot go stale: generated ones equal their tables, named things exist."""
