"""The direct connection to this service's broker: typed calls, leadership, topics."""
