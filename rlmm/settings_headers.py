"""Headers of a settings record: what its writer knew when it decided. Pure.

A record can arrive long after it was sent: its outcome was unknown, its writer was paused or gone,
the broker executed it late. `rlm.seen` (int64) is how far the writer had read the settings topic; a
reader that finds the record behind a newer one of its key knows that the writer did not know the
newer one. Tombstones have no value that could hold their leader epoch, so `rlm.epoch` (int32) does.
Records of older versions have neither header, and count in their order.
"""

import struct
from dataclasses import dataclass

from kip405.errors import Corrupt
from rlmm.settings_records import NO_LEADER_EPOCH

_INT32 = struct.Struct(">i")


Headers = tuple[tuple[str, bytes], ...]


SEEN_HEADER = "rlm.seen"


EPOCH_HEADER = "rlm.epoch"


_INT64 = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterKnowledge:
    """`seen`: the writer knew every record below that offset. `leader_epoch`: of a tombstone's
    writer.
    """

    seen: int
    leader_epoch: int = NO_LEADER_EPOCH

    def encode(self) -> Headers:
        return (
            (SEEN_HEADER, _INT64.pack(self.seen)),
            (EPOCH_HEADER, _INT32.pack(self.leader_epoch)),
        )

    @classmethod
    def decode(cls, headers: Headers) -> "WriterKnowledge | None":
        """None where the writer did not say; Corrupt for a header of another size."""
        found = dict(headers)
        if SEEN_HEADER not in found:
            return None
        try:
            (seen,) = _INT64.unpack(found[SEEN_HEADER])
            (leader_epoch,) = _INT32.unpack(found.get(EPOCH_HEADER, _INT32.pack(NO_LEADER_EPOCH)))
        except struct.error as error:
            raise Corrupt(f"headers of a settings record: {error}") from error
        return cls(seen=seen, leader_epoch=leader_epoch)
