"""The gRPC API (proto/rlm/v1): servers, errors, and the peers that one service asks."""
