"""Kafka's protocol over the remote tier alone, without any broker: what an attached reader has."""
