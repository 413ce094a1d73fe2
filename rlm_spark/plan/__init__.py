"""Decides which offsets a read covers and how tasks share them; only `positions` does IO."""
