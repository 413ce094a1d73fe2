"""Kafka's wire protocol, sans-IO: frames, a table-driven codec, and the scan-and-patch hot paths.

The proxy reads a few fields of a few APIs and leaves everything else byte for byte; the direct
broker connection encodes and decodes the same few APIs. This package must not know asyncio,
sockets, tiered topics, or what a remote segment is.
"""
