"""The remote log of a partition: views of it, positions in it, and reads over both tiers.

What is known of a partition has one type for each way to know it: `LedPartition` (rlm.broker) is
its leader by one answer of Metadata. `Watermarks` are the offsets of the leader's own log, as the
broker answered them. `PartitionSnapshot` holds all inputs of the leader's plans, sampled in a safe
order. `TierPartition` is the leader's view for the proxy and the API, from the last snapshot and
the ledger as it is now. `RemotePartitionState` is the view without a leader, from ledger and
settings alone. `RemoteHistory` has the segments to read along one lineage; both views have one.
"""
