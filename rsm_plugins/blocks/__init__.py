"""The layout "blocks": a segment as blocks of entries with one index object (PIP-17)."""
