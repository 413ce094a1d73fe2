"""Says what forbids every deletion from a partition, whatever the reason to delete.

Trims, expiry and sweeps have guards of their own beside these. Pure: `deletion_guards` in
`rlm/remote_log/snapshots.py` collects them by settings and ledger as they are now.
"""

import enum
from dataclasses import dataclass

from rlm.plans.freeze import Frozen


class Forbidden(enum.Enum):
    """Reasons why nothing is deleted, as `status` shows them."""

    NOT_READY = "settings or ledger are not read yet"
    LEDGER_PROBLEM = "the ledger has a problem"
    FREEZE_RECORD = "frozen by command"
    FROZEN = "partition is frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionGuards:
    """`ledger_problem`, `freeze_record`: text if there is one."""

    ready: bool
    ledger_problem: str | None
    freeze_record: str | None
    frozen: Frozen | None


def forbidden(guards: DeletionGuards) -> tuple[Forbidden, str] | None:
    """Why nothing may be deleted now, with details; None where these guards allow it."""
    if not guards.ready:
        return Forbidden.NOT_READY, ""
    if guards.ledger_problem is not None:
        return Forbidden.LEDGER_PROBLEM, guards.ledger_problem
    if guards.freeze_record is not None:
        return Forbidden.FREEZE_RECORD, guards.freeze_record
    if guards.frozen is not None:
        return Forbidden.FROZEN, guards.frozen.reason
    return None


def refusal(guards: DeletionGuards) -> str | None:
    """The same in one text."""
    found = forbidden(guards)
    if found is None:
        return None
    reason, detail = found
    return f"{reason.value}: {detail}" if detail else reason.value
