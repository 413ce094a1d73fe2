"""Decides whether an end offset comes from the leader or from a deposed leader (H17). Pure.

A leader that was paused answers with its old high watermark before it learns of the election; a
leader that is cut off from the controller does so for as long as that lasts. A request with an
epoch does not help: nobody knows the newer epoch yet. But a record counts as written once it is in
as many replicas as min.insync.replicas. So at least one of any (replicas - min.insync.replicas + 1)
replicas has it, and knows the epoch it was written under: it got the record from a leader of that
epoch. If so many replicas, the leader among them, were asked after the question arose and none
knows a newer epoch than the leader's, then everything written before is below the leader's end.
With one replica, or where all replicas must have a record, the leader alone is enough.
"""

from typing import NamedTuple

from kip405.errors import Unavailable
from kip405.ids import TopicPartition


class LogEnd(NamedTuple):
    """The end of a partition on one broker (the leader's high watermark, another replica's log
    end), and the leader epoch that this broker knows.
    """

    end_offset: int
    leader_epoch: int


class ReplicaVotes:
    """The answers, as they arrive, to one question for the end of a partition."""

    def __init__(
        self,
        place: TopicPartition,
        *,
        leader: int,
        replicas: frozenset[int],
        min_insync_replicas: int,
    ) -> None:
        self._place = place
        self._leader = leader
        self._others_needed = max(0, len(replicas) - max(1, min_insync_replicas))
        self._others = replicas - {leader}
        self._epochs: dict[int, int] = {}
        self._end: LogEnd | None = None
        self._silent: dict[int, str] = {}

    @property
    def others(self) -> frozenset[int]:
        """Whom to ask beside the leader."""
        return self._others if self._others_needed else frozenset()

    def take(self, node: int, answer: LogEnd) -> None:
        """What a replica answered."""
        if node == self._leader:
            self._end = answer
        else:
            self._epochs[node] = answer.leader_epoch

    def refuse(self, node: int, why: str) -> None:
        """A replica gave no answer."""
        self._silent[node] = why

    @property
    def has_end(self) -> bool:
        """The leader has answered."""
        return self._end is not None

    @property
    def is_decided(self) -> bool:
        """Nothing that may still come can change the result for the better."""
        if self._leader in self._silent:
            return True
        has_enough = len(self._epochs) >= self._others_needed
        is_all = len(self._epochs) + len(self._silent.keys() & self._others) == len(self._others)
        return self._end is not None and (has_enough or is_all)

    def end(self) -> int:
        """The end offset behind everything that was written before the question; Unavailable where
        it is not known.
        """
        what = f"end offset of {self._place}"
        if self._end is None:
            raise Unavailable(f"{what}: {self._silent.get(self._leader, 'no leader')}")
        newer = [node for node, epoch in self._epochs.items() if epoch > self._end.leader_epoch]
        if newer:
            raise Unavailable(f"{what}: broker {newer[0]} knows a newer leader than {self._leader}")
        if len(self._epochs) < self._others_needed:
            silent = "; ".join(f"broker {node}: {why}" for node, why in self._silent.items())
            raise Unavailable(f"{what}: too few replicas confirm the leader's epoch ({silent})")
        return self._end.end_offset
