"""Benchmarks of stores: reads, first records and copies over S3 with added latency, and HDFS."""
