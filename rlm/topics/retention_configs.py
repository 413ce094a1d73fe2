"""Kafka's configurations of a topic's retention, which a topic in mode tier has taken over."""

RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
TAKEN_OVER = (RETENTION_MS, RETENTION_BYTES)
UNLIMITED = "-1"
"""What the brokers' retention is set to: then only ours acts on the topic."""
