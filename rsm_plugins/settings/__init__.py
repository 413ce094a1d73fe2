"""Settings of the kinds of stores: their tables, how they are read, what is masked."""
