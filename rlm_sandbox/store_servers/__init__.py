"""Real storage servers for the sandbox and the tests: their files, configuration and
readiness.

They start no processes: the sandbox and the tests do, from the commands given here.
"""
