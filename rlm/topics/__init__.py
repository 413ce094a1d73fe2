"""Enabling, trimming and disabling topics: who takes retention over, and how it is given back."""
