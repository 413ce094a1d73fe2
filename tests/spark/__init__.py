"""The connector in a real Spark over a real Kafka whose history is remote."""
