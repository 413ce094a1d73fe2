"""S3 behind a network and a server that fail: the right error, tried again where that helps, the
right bytes or none, and nothing left behind.

CI: every fault once on every operation, and every lasting fault on one operation. LONG: all pairs.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip405.errors import Invalid, NotFound, RemoteStorageError, Unavailable
from rsm_plugins.layout.keys import ObjectKind
from tests.builders.cutting_actions import (
    Action,
    Answer,
    AnswerLost,
    Delay,
    FlipRequest,
    ResetAnswer,
    ResetRequest,
    ShortBody,
    StallAnswer,
    StallRequest,
    WrongLength,
)
from tests.rsm_plugins.faults.cut_store import CutStore, cut_store
from tests.rsm_plugins.faults.operations import BY_NAME, OPERATIONS, Operation
from tests.store_servers import S3Server
from tests.waiting import succeeds_once

TRIES = 8  # of what may pass
SHORT_CALL_MS = 4_000
ATTEMPT: dict[str, Any] = {"rsm.config.s3.api.call.attempt.timeout": 1_500}


def fits(where: str, operation: Operation) -> bool:
    """Whether a fault of requests, of answers, of the server's codes is one of this operation."""
    return {
        "any": True,
        "sends": operation.sends,
        "receives": operation.receives,
        "codes": operation.name != "stat",  # the answer to a HEAD has no body to say why
    }[where]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """A fault that a second try survives; `on` says which operations it can be put on."""

    name: str
    action: Action
    on: str = "any"

    def fits(self, operation: Operation) -> bool:
        return fits(self.on, operation)

    @property
    def limits(self) -> dict[str, Any]:
        """Time-outs in place of the usual ones."""
        return ATTEMPT if isinstance(self.action, StallRequest | StallAnswer) else {}


PASSING = (
    Passing(name="500", action=Answer(status=500, code="InternalError")),
    Passing(name="503", action=Answer(status=503, code="SlowDown")),
    Passing(name="503 with another code", action=Answer(status=503, code="ServiceUnavailable")),
    Passing(name="expired token", action=Answer(status=403, code="ExpiredToken"), on="codes"),
    Passing(name="answer lost", action=AnswerLost()),
    Passing(name="reset before", action=ResetRequest()),
    Passing(name="reset in the request", action=ResetRequest(after_bytes=50), on="sends"),
    Passing(name="reset in the answer", action=ResetAnswer(after_bytes=5), on="receives"),
    Passing(name="stalled before", action=StallRequest()),
    Passing(
        name="stalled in the request",
        action=StallRequest(after_bytes=50),
        on="sends",
    ),
    Passing(name="stalled in the answer", action=StallAnswer(after_bytes=5), on="receives"),
    Passing(name="short body", action=ShortBody(missing_bytes=3), on="receives"),
    Passing(name="bit flipped on the way up", action=FlipRequest(position=77), on="sends"),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.name.replace(" ", "_"))
async def test_a_fault_that_passes(fault: Passing, s3_server: S3Server, tmp_path: Path) -> None:
    """One more request, the right outcome, and no upload left."""
    async with cut_store(s3_server, tmp_path, **fault.limits) as store:
        for operation in (one for one in OPERATIONS if fault.fits(one)):
            most = 3 if fault.limits else 1  # a stall of the machine is longer than a short limit
            await succeeds_once(partial(_passes, store, fault, operation), most)


async def _passes(store: CutStore, fault: Passing, operation: Operation) -> None:
    usual = await store.baseline(operation)
    segment = await store.prepared(operation)
    scripted = store.proxy.script(fault.action, *operation.requests)
    await operation.run(store.subject, segment)
    assert scripted.hits == 1, operation.name
    assert store.count(operation) == usual + 1, operation.name
    lost = fault.action == AnswerLost() and operation.name == "copy_begin"
    assert len(store.uploads()) == (1 if lost else 0), operation.name
    await store.nothing_stays()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """A fault that stays: the error it is, and how often each request is tried."""

    name: str
    action: Action
    error: type[RemoteStorageError] = Unavailable
    tries: int = TRIES
    says: str = ""
    on: str = "any"
    example: str = "fetch"

    def fits(self, operation: Operation) -> bool:
        if self.error is NotFound:
            return operation.name in ("fetch", "indexes", "index", "manifest")
        if self.error is Invalid and operation.name == "delete_many":
            return False  # then each object is deleted by a request of its own
        return fits(self.on, operation)


LASTING = (
    Lasting(name="500", action=Answer(status=500, code="InternalError"), says="HTTP 500"),
    Lasting(name="503", action=Answer(status=503, code="SlowDown"), example="copy_part"),
    Lasting(
        name="expired token",
        action=Answer(status=403, code="ExpiredToken"),
        on="codes",
        tries=2,
        says="ExpiredToken",
        example="copy_begin",
    ),
    Lasting(name="denied", action=Answer(status=403, code="AccessDenied"), tries=1, says="s3:"),
    Lasting(
        name="unknown key",
        action=Answer(status=403, code="InvalidAccessKeyId"),
        on="codes",
        tries=1,
        says="credentials",
        example="list",
    ),
    Lasting(
        name="no such bucket",
        action=Answer(status=404, code="NoSuchBucket"),
        on="codes",
        tries=1,
        says="bucket",
        example="indexes",
    ),
    Lasting(
        name="no such key",
        action=Answer(status=404, code="NoSuchKey"),
        error=NotFound,
        tries=1,
        example="manifest",
    ),
    Lasting(
        name="unknown to the server",
        action=Answer(status=501, code="NotImplemented"),
        error=Invalid,
        tries=1,
        example="copy_complete",
    ),
    Lasting(name="reset before", action=ResetRequest(), example="delete"),
    Lasting(
        name="reset in the request",
        action=ResetRequest(after_bytes=50),
        on="sends",
        example="copy_small",
    ),
    Lasting(name="reset in the answer", action=ResetAnswer(after_bytes=5), on="receives"),
    Lasting(name="short body", action=ShortBody(missing_bytes=3), on="receives"),
    Lasting(
        name="bit flipped on the way up",
        action=FlipRequest(position=77),
        on="sends",
        example="copy_part",
    ),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", LASTING, ids=lambda fault: fault.name.replace(" ", "_"))
async def test_a_fault_that_lasts(fault: Lasting, s3_server: S3Server, tmp_path: Path) -> None:
    async with cut_store(s3_server, tmp_path) as store:
        await _fails_and_heals(store, fault, BY_NAME[fault.example])


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", LASTING, ids=lambda fault: fault.name.replace(" ", "_"))
async def test_every_fault_that_lasts_on_every_operation(
    fault: Lasting, s3_server: S3Server, tmp_path: Path
) -> None:
    async with cut_store(s3_server, tmp_path) as store:
        for operation in (one for one in OPERATIONS if fault.fits(one)):
            await _fails_and_heals(store, fault, operation)


async def _fails_and_heals(store: CutStore, fault: Lasting, operation: Operation) -> None:
    """The error, the number of tries, no upload left; afterwards the same operation works."""
    usual = await store.baseline(operation)
    segment = await store.prepared(operation)
    scripted = store.proxy.script(fault.action, *operation.requests, times=None)
    with pytest.raises(RemoteStorageError) as caught:
        await operation.run(store.subject, segment)
    error = caught.value
    assert type(error) is fault.error, f"{operation.name}: {error!r}"
    assert fault.says in str(error), operation.name
    assert not any(secret in repr(error) for secret in store.rig.secrets)
    # aiohttp repeats by itself what failed on a connection that the server may have closed before.
    assert fault.tries <= scripted.hits <= 2 * fault.tries * max(usual, 1), operation.name
    assert store.uploads() == [], operation.name
    store.proxy.forget()
    await operation.run(store.subject, segment)
    await store.nothing_stays()


async def test_a_refusal_without_a_word(s3_server: S3Server, tmp_path: Path) -> None:
    """Expired or not allowed, a HEAD's 403 does not say: never "missing", and once only."""
    operation = BY_NAME["stat"]
    async with cut_store(s3_server, tmp_path) as store:
        segment = await store.prepared(operation)
        scripted = store.proxy.script(Answer(status=403, code="ExpiredToken"), times=None)
        with pytest.raises(Unavailable, match="403"):
            await operation.run(store.subject, segment)
        assert 1 <= scripted.hits <= len(ObjectKind)
        await store.nothing_stays()


@pytest.mark.parametrize("name", ["fetch", "copy_part", "list", "stat"])
async def test_a_server_that_stalls_for_ever(
    name: str, s3_server: S3Server, tmp_path: Path
) -> None:
    """Unavailable at the deadline of the call, not the tests'."""
    limit: dict[str, Any] = {**ATTEMPT, "rsm.config.s3.api.call.timeout": SHORT_CALL_MS}
    operation = BY_NAME[name]

    async def attempt() -> None:
        async with cut_store(s3_server, tmp_path, **limit) as store:
            segment = await store.prepared(operation)
            store.proxy.script(StallRequest(), *operation.requests, times=None)
            with pytest.raises(Unavailable):
                await operation.run(store.subject, segment)
            assert store.count(operation) > 1, "tried once only"
            assert store.uploads() == []
            store.proxy.forget()
            await operation.run(store.subject, segment)
            await store.nothing_stays()

    # All that the short limits of a call and of its tries hold up
    await succeeds_once(attempt, failures=(AssertionError, Unavailable))


async def test_lengths_that_are_wrong(s3_server: S3Server, tmp_path: Path) -> None:
    """An answer that declares fewer bytes than were asked for is not taken for the range."""
    operation = BY_NAME["fetch"]
    async with cut_store(s3_server, tmp_path) as store:
        segment = await store.prepared(operation)
        store.proxy.script(WrongLength(missing_bytes=100), "GetObject")
        await operation.run(store.subject, segment)
        assert store.proxy.requests["GetObject"] == 2
        store.proxy.script(WrongLength(missing_bytes=100), "GetObject", times=None)
        with pytest.raises(Unavailable):
            await operation.run(store.subject, segment)
        await store.nothing_stays()


async def test_latency_is_no_fault(s3_server: S3Server, tmp_path: Path) -> None:
    async with cut_store(s3_server, tmp_path) as store:
        for operation in OPERATIONS:
            usual = await store.baseline(operation)
            segment = await store.prepared(operation)
            store.proxy.script(Delay(seconds=0.02), times=None)
            await operation.run(store.subject, segment)
            assert store.count(operation) == usual, operation.name


async def test_what_cannot_be_inspected_is_unknown(s3_server: S3Server, tmp_path: Path) -> None:
    """No fact's failure hides the others or the store."""
    async with cut_store(s3_server, tmp_path) as store:
        usual = {finding.kind for finding in await store.subject.manager.inspect()}
        denied = Answer(status=403, code="AccessDenied")
        store.proxy.script(denied, "GetBucketVersioning", times=None)
        found = {one.kind.value: one.state for one in await store.subject.manager.inspect()}
        assert {kind.value for kind in usual} <= set(found)
        assert found["versioning"].startswith("unknown: ")
