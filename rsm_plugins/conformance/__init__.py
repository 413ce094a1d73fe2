"""The conformance suite of RemoteStorageManager, for every implementation, direct and over gRPC.

The cases are plain async functions over a `Subject`, without a test framework, so that the suite
also runs as a command.
"""
