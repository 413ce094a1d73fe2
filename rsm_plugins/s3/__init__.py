"""The RemoteStorageManager over a bucket of Amazon S3, or of a server with the same protocol."""
