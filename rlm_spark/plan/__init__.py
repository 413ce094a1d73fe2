"""Which offsets a read covers, and how they are cut into tasks; no IO but positions."""
