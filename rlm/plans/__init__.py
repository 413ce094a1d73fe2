"""Decisions as pure functions: what to copy, trim, sweep, freeze, read. No await, clock or IO."""
