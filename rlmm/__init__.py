"""Metadata of segments: the ledger and the settings, two compacted Kafka topics."""
