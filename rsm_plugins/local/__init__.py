"""The store in a local or mounted directory."""
