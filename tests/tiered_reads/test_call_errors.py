"""Errors of our services, and those of gRPC itself."""

import re

import grpc
import pytest

from kip405.errors import (
    Busy,
    Corrupt,
    Elsewhere,
    ErrorKind,
    Invalid,
    NotFound,
    OffsetOutOfRange,
    RemoteStorageError,
)
from rlm.remote_log.reads import below_log_start
from rsm_plugins.contract.status import PermissionDenied, Unauthenticated
from tests.builders.failed_call import FailedCall
from tiered_reads.service_calls import failure_of


@pytest.mark.parametrize("error", [NotFound("no t"), Busy("full"), Corrupt("bad"), Invalid("who?")])
def test_kind_and_words_come_through(error: RemoteStorageError) -> None:
    failure = failure_of(FailedCall.of(error), "a:1")
    assert (failure.kind, failure.what) == (error.kind, str(error))


def test_the_leader_comes_through() -> None:
    failure = failure_of(FailedCall.of(Elsewhere("broker 2 leads", "b:2")), "a:1")
    assert (failure.kind, failure.leader_address) == (ErrorKind.FENCED, "b:2")


@pytest.mark.parametrize("bounds", [(12, None), (0, None), (None, 60), (None, 0)])
def test_the_bound_that_an_offset_violates_comes_through(
    bounds: tuple[int | None, int | None],
) -> None:
    start, end = bounds
    error = OffsetOutOfRange("out of range", log_start_offset=start, high_watermark=end)
    failure = failure_of(FailedCall.of(error), "a:1")
    assert (failure.log_start_offset, failure.high_watermark) == bounds
    assert (failure.kind, failure.lacks_bounds) == (ErrorKind.INVALID, False)


@pytest.mark.parametrize("words", ["below log_start_offset=12", "beyond high_watermark=60"])
def test_no_bound_is_read_from_words(words: str) -> None:
    failure = failure_of(FailedCall.of(Invalid(words)), "a:1")
    assert (failure.log_start_offset, failure.high_watermark) == (None, None)
    assert failure.lacks_bounds
    assert not failure_of(FailedCall.of(Corrupt(words)), "a:1").lacks_bounds


@pytest.mark.parametrize("refusal", [Unauthenticated("who?"), PermissionDenied("no right")])
def test_who_is_not_let_in_asks_for_no_bounds(refusal: Invalid) -> None:
    failure = failure_of(FailedCall.of(refusal), "a:1")
    assert (failure.kind, failure.what) == (ErrorKind.INVALID, str(refusal))
    assert not failure.lacks_bounds


def test_connectors_of_older_versions_find_the_bound_in_the_words() -> None:
    """They search for these texts, and services are renewed one by one."""
    error = below_log_start("t-0", 3, 12)
    assert re.search(r"log_start_offset=(-?\d+)", failure_of(FailedCall.of(error), "a:1").what)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, ErrorKind.UNAVAILABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ErrorKind.UNAVAILABLE),
        (grpc.StatusCode.UNAUTHENTICATED, ErrorKind.INVALID),
        (grpc.StatusCode.UNIMPLEMENTED, ErrorKind.INVALID),
        (grpc.StatusCode.UNKNOWN, ErrorKind.INTERNAL),
    ],
)
def test_without_a_detail_the_code_decides(code: grpc.StatusCode, kind: ErrorKind) -> None:
    failure = failure_of(FailedCall(code, "why"), "a:1")
    assert failure.kind is kind
    assert not failure.lacks_bounds
    assert "a:1" in failure.what


@pytest.mark.parametrize("packed", [b"", b"\xff\xff", b"\x1a\x03\x0a\x01x"])
def test_a_detail_that_is_none_is_passed_over(packed: bytes) -> None:
    metadata = (("grpc-status-details-bin", packed),)
    failed = FailedCall(grpc.StatusCode.UNAVAILABLE, "why", metadata)
    assert failure_of(failed, "a:1").kind is ErrorKind.UNAVAILABLE
