"""Fuzzing of all that reads bytes of clients and brokers: cutters, scanners, codecs, TLS records.

A seed is a few hundred inputs: real frames of every version of every API that has a table, mutated
and cut at random. Whatever comes, the only way to say no is the one named error, and what is
understood does not depend on how the bytes were cut.
"""
