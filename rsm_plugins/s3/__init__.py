"""RemoteStorageManager over a bucket of Amazon S3 or of a server that speaks its protocol."""
