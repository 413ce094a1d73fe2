"""Records of the remote tier written into a topic of a cluster, each once, as they were."""
