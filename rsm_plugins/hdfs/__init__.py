"""The RemoteStorageManager over HDFS, with the client library hdfs-native (no Java)."""
