"""KIP-405's vocabulary: ids, states, segments, lineage, batch and index formats, contracts.

Shared by every other package and importing none of them, so it also has what every process needs:
addresses, the version of the software, the settings of malloc. No await, clock, file or socket.
"""
