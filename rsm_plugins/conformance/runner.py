"""Runs cases one after the other, each under a cluster id of its own; reports failures and goes on.

The caller provides the manager; the runner must not know which store is behind it.
"""

import asyncio
import difflib
import enum
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kip405.errors import Invalid, RemoteStorageError
from rsm_plugins.conformance import broken_copies, deletes, listings, objects, ranges, wire
from rsm_plugins.conformance.subject import CaseSkipped, ConformanceFailure, Subject

Case = Callable[[Subject], Awaitable[None]]
CASES: tuple[Case, ...] = (
    *listings.CASES,
    *objects.CASES,
    *ranges.CASES,
    *broken_copies.CASES,
    *deletes.CASES,
)
WIRE_CASES: tuple[Case, ...] = wire.CASES
CASE_SECONDS = 300.0


class Status(enum.Enum):
    PASSED = "ok"
    FAILED = "FAIL"
    SKIPPED = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one case; `detail` says why it failed or was skipped."""

    mode: str
    name: str
    status: Status
    detail: str = ""
    seconds: float = 0.0


def name_of(case: Case) -> str:
    return getattr(case, "__name__", "case")


def summary_of(case: Case) -> str:
    """What a case is about: the first sentence of its docstring, on one line."""
    text = " ".join((case.__doc__ or "").split())
    return text.partition(" (Aiven")[0].partition(" (Pulsar")[0].rstrip(".")


def chosen(names: Sequence[str], cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """The cases with these names, or all cases if none is named. Invalid suggests similar names for
    an unknown name.
    """
    known = {name_of(case): case for case in (*CASES, *WIRE_CASES)}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            raise Invalid(
                f"there is no case {name!r}"
                + (f"; near it: {', '.join(near)}" if near else "; --list shows them")
            )
    return tuple(case for case in cases if not names or name_of(case) in names)


async def run_suite(
    subject: Subject,
    mode: str,
    cases: Sequence[Case] = CASES,
    *,
    report: Callable[[Outcome], None] = lambda _: None,
    case_seconds: float = CASE_SECONDS,
) -> list[Outcome]:
    """The outcome of every case, also reported as soon as it is known; all objects are removed.

    Each case gets a subject like the given one, with a cluster id and a folder of its own.
    """
    outcomes: list[Outcome] = []
    for case in cases:
        with tempfile.TemporaryDirectory(dir=subject.folder) as folder:
            own = replace(
                subject,
                cluster_id=f"conformance-{subject.new_uuid()}",
                folder=Path(folder),
                made=[],
                answered={},
            )
            outcome = await _outcome(mode, case, own, case_seconds)
        report(outcome)
        outcomes.append(outcome)
    return outcomes


async def _outcome(mode: str, case: Case, subject: Subject, case_seconds: float) -> Outcome:
    loop = asyncio.get_running_loop()
    began = loop.time()
    status, detail = Status.PASSED, ""
    try:
        async with asyncio.timeout(case_seconds):
            await _run(case, subject)
    except CaseSkipped as error:
        status, detail = Status.SKIPPED, str(error)
    except TimeoutError:
        status, detail = Status.FAILED, f"not done within {case_seconds:g} s"
    except (ConformanceFailure, RemoteStorageError) as error:
        status, detail = Status.FAILED, f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - a runner: whatever else comes is the case's failure
        status, detail = Status.FAILED, f"not an error of the contract: {error!r}"
    return Outcome(
        mode=mode,
        name=name_of(case),
        status=status,
        detail=" ".join(detail.split()),
        seconds=loop.time() - began,
    )


async def _run(case: Case, subject: Subject) -> None:
    await subject.ensure_identity()
    try:
        await case(subject)
    finally:
        await subject.clean_up()
