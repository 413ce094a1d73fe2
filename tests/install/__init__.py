"""What was built, installed in environments that have nothing else, and run there."""
