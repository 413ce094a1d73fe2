"""What the three readers share: one read, its place in the comparison, and its end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlm_sandbox.demo.comparison import Comparison, content_differences
from rlm_sandbox.demo.content import Content, Headers, content_digest
from rlm_sandbox.demo.manifest import Expected

Progress = Callable[[int], None]
"""Called now and then with the number of records read so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """What must be read, and the content to say in which field a record differs."""

    expected: Mapping[int, Expected]
    content: Content

    @property
    def records(self) -> int:
        return sum(len(one) for one in self.expected.values())


class RecordCheck:
    """Compares records given as fields; used by the clients that give fields."""

    def __init__(self, yardstick: Yardstick) -> None:
        self.comparison = Comparison(yardstick.expected)
        self._yardstick = yardstick

    def see(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> None:
        """The next record that the client gave."""
        index = self.comparison.place(partition, offset, timestamp_ms)
        if index is None:
            return
        expected = self._yardstick.expected[partition]
        if content_digest(key, value, headers) != expected.digests[index]:
            wanted = self._yardstick.content.record(expected.serials[index])
            detail = content_differences(wanted, key, value, headers)
            self.comparison.altered(partition, offset, detail)
