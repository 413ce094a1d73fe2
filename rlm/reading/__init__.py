"""Reads of remote segments: ranges of verified chunks, read ahead per reader, within a bound."""
