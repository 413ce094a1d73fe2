"""The tools that `make` runs: install, lock, generate, check. The product never imports them."""
