"""Metadata of remote log segments: the ledger and the settings, two compacted Kafka topics."""
