"""A Spark session on this machine, for commands, tests and the demo."""
