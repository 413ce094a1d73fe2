"""The Kafka-protocol proxy before a listener of the broker."""
