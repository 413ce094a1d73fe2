"""The work: copy, trim, sweep, fetch, proxy, API and service."""
