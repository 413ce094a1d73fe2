"""The conformance suite of the RemoteStorageManager contract: for every implementation, direct and
over gRPC.

Plain async functions over a `Subject`, without a test framework, so that it also runs as a command.
"""
