"""Remote partitions copied back into log directories that a broker, or Kafka's tools, can read."""
