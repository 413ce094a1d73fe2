"""Errors of the topic verbs that carry more than a message."""

from kip405.errors import Fenced


class NotLeader(Fenced):
    """Another service must do this: the one of the broker that leads the partition."""

    def __init__(self, message: str, *, leader: int) -> None:
        super().__init__(message)
        self.leader = leader
