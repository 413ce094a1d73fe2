"""`python -m rlm_sandbox.demo`: real records, trimmed on a real Kafka, read back by clients."""
