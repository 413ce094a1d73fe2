"""Runners of the plans: bounded pools, one running job per partition (G6)."""
