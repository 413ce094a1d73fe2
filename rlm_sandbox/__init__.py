"""A real Kafka with the service beside it, on one machine, for tests, the demo and first steps."""
