"""Segments that another uploader has stored become remote segments, read-only."""
