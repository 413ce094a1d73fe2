"""`python -m bench.spark`: the connector beside Spark's own Kafka source, and the exports."""
