"""The stores of a service: which stores exist, which one holds an object, and their health."""
