"""Tests of the S3 store: against a real server, and by the requests that reach one."""
