"""The broker's disk, read-only, and the proof that it is the right one (H13)."""
