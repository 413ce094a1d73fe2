"""The one error of the demo: a step did not come out as promised; the message says how."""


class DemoError(Exception):
    """A step failed; one or a few lines for the person who watches."""
