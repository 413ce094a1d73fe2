"""Records of one range from both tiers: clients of service and brokers, failover, retries."""
