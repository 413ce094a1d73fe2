"""The secured kinds of a sandbox: who the principals are, and how brokers and clients prove it."""
