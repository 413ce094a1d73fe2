"""Tests of kafka-rlm; they mirror the packages."""
