"""The broker's log directories, read-only, and the proof that they are the right ones (H13)."""
