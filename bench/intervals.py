"""The intervals that services have by default, for a sandbox that is to do as in production."""

from rlm.config.service import settings
from rlm_sandbox.services import QUICK_SERVICE
from rlm_sandbox.spec import Override


def default_intervals() -> tuple[Override, ...]:
    """Takes back what a sandbox sets lower, so that tests see something within seconds: with a
    task each half a second, the topics of earlier rounds are most of the work.
    """
    return tuple(
        Override.parse(f"rlm.{row.key}={row.default}")
        for row in settings().values()
        if row.key in QUICK_SERVICE and row.key.endswith(".interval.ms")
    )
