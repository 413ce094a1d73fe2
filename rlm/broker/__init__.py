"""The direct connection to our own broker: typed calls, leadership, what it says of topics."""
