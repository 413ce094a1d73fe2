"""Runs the cases that need nothing but a manager, one after the other, and reports instead of
stopping.
"""

import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from kip405.contracts import RemoteStorageManager
from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from rsm_plugins.conformance import listings, objects
from rsm_plugins.conformance.subject import ConformanceFailure, Subject

Case = Callable[[Subject], Awaitable[None]]
CASES: tuple[Case, ...] = (*listings.CASES, *objects.CASES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one case; `problem` is empty when it passed."""

    mode: str
    name: str
    problem: str


async def run_suite(
    manager: RemoteStorageManager, mode: str, new_uuid: Callable[[], Uuid]
) -> list[Outcome]:
    """Outcome of every case, each under a cluster id of its own; what was written is removed."""
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="rsm-conformance-") as folder:
        for case in CASES:
            subject = Subject(
                manager=manager,
                folder=Path(folder),
                new_uuid=new_uuid,
                cluster_id=f"conformance-{new_uuid()}",
            )
            name = getattr(case, "__name__", "case")
            outcomes.append(Outcome(mode=mode, name=name, problem=await _run(case, subject)))
    return outcomes


async def _run(case: Case, subject: Subject) -> str:
    try:
        await subject.ensure_identity()
        try:
            await case(subject)
        finally:
            await subject.clean_up()
    except (ConformanceFailure, RemoteStorageError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
