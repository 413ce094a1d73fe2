"""The conformance kit against every store: called directly, through gRPC in this process, through
a plugin process, by bytes and by files.
"""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Corrupt, Invalid
from kip405.segments import Layout
from rsm_plugins.conformance import faults, runner
from rsm_plugins.conformance.runner import Outcome, Status, chosen, name_of, run_suite, summary_of
from rsm_plugins.conformance.subject import (
    MANY_OBJECTS,
    CaseSkipped,
    ConformanceFailure,
    Subject,
    check_equal,
    fails,
)
from rsm_plugins.layout.keys import IDENTITY_NAME
from tests.rsm_plugins.conftest import KINDS
from tests.rsm_plugins.stores import (
    BYTES,
    DIRECT,
    FEW,
    FILES,
    MODES,
    PROCESS,
    StoreRig,
    local_rig,
    opened,
)

EVERY_CASE = (*runner.CASES, *faults.CASES, *runner.WIRE_CASES)
AIVEN = (
    "testUploadFetchDelete",
    "testUploadANewFile",
    "testRetryUploadKeepLatestVersion",
    "testFetchFailWhenNonExistingKey",
    "testFetchAll",
    "testFetchWithOffsetRange",
    "testFetchSingleByte",
    "testFetchWithOffsetRangeLargerThanFileSize",
    "testFetchWithRangeOutsideFileSize",
    "testFetchNonExistingKey",
    "testFetchNonExistingKeyMasking",
    "testDelete",
    "testDeletes",
)
PULSAR = (
    "testHappyCase",
    "testBucketDoesNotExist",
    "testOffloadAndRead",
    "testOffloadFailInitDataBlockUpload",
    "testOffloadFailDataBlockPartUpload",
    "testOffloadFailDataBlockUploadComplete",
    "testOffloadFailPutIndexBlock",
    "testOffloadReadRandomAccess",
    "testOffloadReadInvalidEntryIds",
    "testDeleteOffloaded",
    "testOffloadEmpty",
    "testReadUnknownDataVersion",
    "testReadUnknownIndexVersion",
    "testReadEOFException",
    "testReadNotExistLedger",
)
# Every store directly and through gRPC; the modes left out here are in the LONG ring.
IN_CI = (
    *(("local", mode) for mode in MODES),
    *(("s3", mode) for mode in (DIRECT, FILES, PROCESS)),
    *(pytest.param("hdfs", mode, marks=pytest.mark.integration) for mode in (DIRECT, PROCESS)),
)
# What a mode cannot show, and nothing else, may be skipped.
SKIPPED = {
    DIRECT: {name_of(case) for case in runner.WIRE_CASES},
    BYTES: {"leftovers_are_swept"},
    FILES: {"leftovers_are_swept"},
    PROCESS: {"leftovers_are_swept"},
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("rig", "mode"), IN_CI, indirect=["rig"])
async def test_contract(rig: StoreRig, mode: str, tmp_path: Path) -> None:
    async with opened(rig, mode, tmp_path) as subject:
        await _passes(subject, mode)


# The layout `blocks`: directly and through gRPC; the other modes differ in what is below it.
BLOCKS_IN_CI = (
    ("local", DIRECT),
    ("local", BYTES),
    ("s3", DIRECT),
    *(
        pytest.param(kind, mode, marks=[pytest.mark.long, *marks])
        for kind, mode, *marks in (
            ("local", FILES),
            ("local", PROCESS),
            ("s3", FILES),
            ("s3", PROCESS),
            ("hdfs", DIRECT, pytest.mark.integration),
            ("hdfs", PROCESS, pytest.mark.integration),
        )
    ),
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("rig", "mode"), BLOCKS_IN_CI, indirect=["rig"])
async def test_contract_in_blocks(rig: StoreRig, mode: str, tmp_path: Path) -> None:
    async with opened(replace(rig, layout=Layout.BLOCKS), mode, tmp_path) as subject:
        await _passes(replace(subject, many=min(subject.many, FEW)), mode)


# The layout `pinterest`: directly; the other modes differ in what is below it.
PINTEREST_IN_CI = (
    ("local", DIRECT),
    ("s3", DIRECT),
    *(
        pytest.param(kind, mode, marks=pytest.mark.long)
        for kind, mode in (
            ("local", BYTES),
            ("local", FILES),
            ("local", PROCESS),
            ("s3", FILES),
            ("s3", PROCESS),
        )
    ),
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("rig", "mode"), PINTEREST_IN_CI, indirect=["rig"])
async def test_contract_in_pinterests_form(rig: StoreRig, mode: str, tmp_path: Path) -> None:
    async with opened(rig.in_pinterests_form(), mode, tmp_path) as subject:
        await _passes(replace(subject, many=min(subject.many, FEW)), mode)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rig", KINDS, indirect=True)
async def test_contract_with_many_objects(rig: StoreRig, mode: str, tmp_path: Path) -> None:
    async with opened(rig, mode, tmp_path) as subject:
        await _passes(replace(subject, many=3 * MANY_OBJECTS), mode)


async def _passes(subject: Subject, mode: str) -> None:
    outcomes = await run_suite(subject, mode, EVERY_CASE)
    assert [one for one in outcomes if one.status is Status.FAILED] == []
    skipped = {one.name for one in outcomes if one.status is Status.SKIPPED}
    assert skipped == SKIPPED[mode]
    assert await _left(subject) == [IDENTITY_NAME]


async def _left(subject: Subject) -> list[str]:
    """What stays in the store once a plugin has ended what was abandoned."""
    assert subject.faults is not None
    left: list[str] = []
    for _ in range(1_000):
        left = [name for name in subject.faults.names() if ".rlm-tmp" not in name]
        if left == subject.faults.names() == [IDENTITY_NAME]:
            break
        await asyncio.sleep(0.02)
    return subject.faults.names()


@pytest.mark.parametrize("peer", [AIVEN, PULSAR], ids=["aiven", "pulsar"])
def test_the_cases_of_the_peers_are_there(peer: tuple[str, ...]) -> None:
    named: list[str] = re.findall(r"\btest[A-Z]\w+", " ".join(str(c.__doc__) for c in EVERY_CASE))
    assert set(peer) - set(named) == set()


def test_every_case_says_what_it_is_about() -> None:
    assert [name_of(case) for case in EVERY_CASE if not summary_of(case)] == []
    assert len({name_of(case) for case in EVERY_CASE}) == len(EVERY_CASE)


def test_cases_are_chosen_by_name() -> None:
    assert chosen((), runner.CASES) == runner.CASES
    assert [name_of(case) for case in chosen(("lists_many",), runner.CASES)] == ["lists_many"]
    assert chosen(("lists_many",), runner.WIRE_CASES) == ()
    with pytest.raises(Invalid, match="there is no case 'list_many'; near it: lists_many"):
        chosen(("list_many",), runner.CASES)


async def test_the_runner_reports_what_fails(tmp_path: Path) -> None:
    rig = local_rig(tmp_path)
    seen: list[Outcome] = []
    async with opened(rig, DIRECT, tmp_path) as subject:
        rig.hands.move_away()
        outcomes = await run_suite(subject, DIRECT, runner.CASES[:5], report=seen.append)
    assert seen == outcomes
    assert {one.status for one in outcomes} == {Status.FAILED}
    assert all(one.detail.startswith("Unavailable: ") for one in outcomes)


async def test_the_runner_survives_every_kind_of_failure(tmp_path: Path) -> None:
    async def stands_still(_: Subject) -> None:
        await asyncio.Event().wait()

    async def breaks(_: Subject) -> None:
        raise KeyError("x")

    async def does_not_apply(_: Subject) -> None:
        raise CaseSkipped("no such thing here")

    async with opened(local_rig(tmp_path), DIRECT, tmp_path) as subject:
        found = await run_suite(subject, DIRECT, (stands_still,), case_seconds=0.2)
        found += await run_suite(subject, DIRECT, (breaks, does_not_apply))
    assert [(one.status, one.detail) for one in found] == [
        (Status.FAILED, "not done within 0.2 s"),
        (Status.FAILED, "not an error of the contract: KeyError('x')"),
        (Status.SKIPPED, "no such thing here"),
    ]


async def test_checks_can_fail(tmp_path: Path) -> None:
    with pytest.raises(ConformanceFailure, match="sizes: 1 instead of 2"):
        check_equal(1, 2, "sizes")
    async with opened(local_rig(tmp_path), DIRECT, tmp_path) as subject:
        with pytest.raises(ConformanceFailure, match="instead of failing with Corrupt"):
            await fails(Corrupt, subject.manager.read_identity(), "identity")
