"""RemoteStorageManager over HDFS, by the client library hdfs-native (no Java)."""
