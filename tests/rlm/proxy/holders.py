"""Holders of the proxy's memory that are no connections, for tests of its bound."""

from dataclasses import dataclass

from rlm.proxy.memory import ConnectionMemory


@dataclass(eq=False)
class Held:
    """Counts its notifications."""

    is_admitted: bool = True
    notified: int = 0

    def memory_freed(self) -> None:
        self.notified += 1


def hold(
    memory: ConnectionMemory, one: Held, *, received: int = 0, work: int = 0, answers: int = 0
) -> None:
    """Set what the holder has."""
    memory.hold(one, received_bytes=received, work_bytes=work, answers_bytes=answers)
