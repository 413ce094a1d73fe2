"""Compositions of broker and reader service: wiring, lifetime, heartbeat, status and problems."""
