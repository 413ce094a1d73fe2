"""KIP-405's vocabulary: ids, states, segments, lineage, batch and index formats, contracts.

Shared by every other package and importing none of them. Pure: no await, clock, file or socket.
"""
