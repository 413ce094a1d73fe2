"""The remote store of a sandbox, by kind: its processes, files and settings."""
