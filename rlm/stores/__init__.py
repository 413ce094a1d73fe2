"""The stores of a service: which there are, which one an object lies in, how each of them is."""
