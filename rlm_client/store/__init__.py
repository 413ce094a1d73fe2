"""Reads of the remote tier by the consumer itself, from the store, with its own credentials."""
