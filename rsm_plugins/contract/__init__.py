"""The gRPC contract of a plugin: client, server, messages, streams and errors."""
