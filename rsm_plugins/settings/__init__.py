"""Settings of the kinds of stores: their tables, how they are read, and the masking of secrets."""
