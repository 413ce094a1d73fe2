"""The one error of the sandbox: a line for the person who typed the command."""


class SandboxError(Exception):
    """Something the user or the machine must mend; the message is one clear line."""
