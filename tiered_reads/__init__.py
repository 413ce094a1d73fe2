"""Records of one range from both tiers: clients of services and brokers, failover, retries."""
