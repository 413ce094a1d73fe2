"""The segments that conformance cases store, and checks with explanatory messages."""

from dataclasses import dataclass

from kip405.contracts import (
    ExpectedSegment,
)
from kip405.segments import LogSegmentData, SegmentLocator


class ConformanceFailure(Exception):
    """A guarantee of the contract that did not hold."""


class CaseSkipped(Exception):
    """A case that does not apply here; the message is the reason."""


def check(condition: bool, message: str) -> None:
    """ConformanceFailure with the message unless the condition holds."""
    if not condition:
        raise ConformanceFailure(message)


def check_equal(found: object, expected: object, what: str) -> None:
    """The same for equality; long values are cut."""
    check(found == expected, f"{what}: {found!r:.200} instead of {expected!r:.200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment to copy, with the bytes that must be returned."""

    locator: SegmentLocator
    data: LogSegmentData
    log: bytes

    @property
    def expected(self) -> ExpectedSegment:
        return ExpectedSegment(
            locator=self.locator,
            log_size_bytes=len(self.log),
            indexes_size_bytes=len(self.data.indexes),
        )
