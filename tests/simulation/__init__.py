"""The real tasks over a model of brokers, metadata topics and stores, in virtual time.

CONTRIBUTING.md says how to run it and how to repeat a seed.
"""
