"""Benchmarks, run by `make bench`: side by side, interleaved, every raw value kept (H32)."""
