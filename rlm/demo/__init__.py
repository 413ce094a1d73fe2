"""`python -m rlm.demo`: a real Kafka, real records, trimmed and read back by three clients."""
