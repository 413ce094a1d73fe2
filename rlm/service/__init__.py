"""Composition roots of broker and reader service, with their wiring, lifetime and status."""
