"""The plugin as a process: command line, start, handshake, configuration."""
