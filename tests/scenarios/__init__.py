"""Whole journeys on real brokers: what clients see while segments move and things break."""
