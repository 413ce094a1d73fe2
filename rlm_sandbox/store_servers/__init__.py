"""Real storage servers for the sandbox and the tests: how each is had, configured and asked whether
it is ready.

They start no processes: the sandbox and the tests do, from the commands given here.
"""
