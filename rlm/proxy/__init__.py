"""The Kafka-protocol proxy on the broker's TIERED listener."""
