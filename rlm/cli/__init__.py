"""The commands: thin layers over the API and the sandbox."""
