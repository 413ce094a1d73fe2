"""Segments whose logs are in a bucket of Pinterest's uploader, which is only read."""
