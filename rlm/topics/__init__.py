"""Enabling, trimming and disabling topics: how retention is taken over and how it is given back."""
