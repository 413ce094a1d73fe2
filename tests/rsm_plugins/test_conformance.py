"""The conformance suite against the local store: direct, and through gRPC by bytes and on a shared
volume.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kip405.errors import Corrupt
from rsm_plugins.conformance import faults, runner
from rsm_plugins.conformance.subject import ConformanceFailure, Subject, check_equal, fails
from tests.rsm_plugins.harness import local_subject, new_uuid

MODES = ("direct", "unshared", "bytes", "shared")


@pytest.fixture(params=MODES)
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with local_subject(tmp_path, request.param) as made:
        yield made


@pytest.mark.parametrize(
    "case", (*runner.CASES, *faults.CASES), ids=lambda case: getattr(case, "__name__", "case")
)
async def test_contract(case: Callable[[Subject], Awaitable[None]], subject: Subject) -> None:
    if case.__name__ != "identity_is_created_once":
        await subject.ensure_identity()
    await case(subject)
    assert subject.faults is not None
    left: list[str] = []
    for _ in range(5_000):
        # The plugin ends an abandoned copy in its own time.
        left = [name for name in subject.faults.names() if name.endswith(".rlm-tmp")]
        if not left:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"temporary files stay: {left}")


async def test_the_runner_reports_what_fails(tmp_path: Path) -> None:
    async with local_subject(tmp_path, "direct") as subject:
        outcomes = await runner.run_suite(subject.manager, "direct", new_uuid)
        assert len(outcomes) == len(runner.CASES)
        assert [outcome for outcome in outcomes if outcome.problem] == []
        assert subject.faults is not None
        subject.faults.move_away()
        outcomes = await runner.run_suite(subject.manager, "direct", new_uuid)
        assert all(outcome.problem.startswith("Unavailable") for outcome in outcomes)


async def test_checks_can_fail(tmp_path: Path) -> None:
    with pytest.raises(ConformanceFailure, match="sizes: 1 instead of 2"):
        check_equal(1, 2, "sizes")
    async with local_subject(tmp_path, "direct") as subject:
        with pytest.raises(ConformanceFailure, match="instead of failing with Corrupt"):
            await fails(Corrupt, subject.manager.read_identity(), "identity")
