"""Tests of the project itself: its tools, its locks, its house rules."""
