"""Verified chunks and indexes of remote segments, kept in bounded memory."""
