"""What `make` runs: install, lock, generate, check. The product never imports it."""
