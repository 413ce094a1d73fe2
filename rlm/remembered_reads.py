"""How far ledger and settings were read, and whether they lost records: kept in the state dir, for
the next process (H42).

A service that starts reads what is there, and what is there looks whole: only what it had read
before can tell that records are gone. The file ends a loss, too: an operator who has repaired the
facts, or made sure that nothing is missing, removes it and starts the service again.
"""

import json
import os
from pathlib import Path
from typing import Any

from kip405.errors import Invalid
from rlmm.barrier import Place
from rlmm.divergence import NOTHING_READ, ReadMark, RememberedReads

_READS_FILE = "facts-read.json"


class ReadsFile:
    """One small file of one cluster, replaced whole."""

    def __init__(self, state_dir: Path, cluster_id: str) -> None:
        self.path = state_dir / _READS_FILE
        self._cluster_id = cluster_id

    @property
    def remedy(self) -> str:
        """How an operator ends a loss, as the end of a sentence that says what was lost."""
        return (
            "nothing is deleted or trimmed until the facts are repaired, "
            f"{self.path} is removed and this service is started again"
        )

    def read(self) -> RememberedReads:
        """What the process before wrote, nothing before the first run; Invalid for a file that is
        not ours.
        """
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return NOTHING_READ
        except (OSError, ValueError) as error:
            raise Invalid(f"{self.path} cannot be read: {error}") from error
        try:
            if content["cluster_id"] != self._cluster_id:
                raise Invalid(f"{self.path} belongs to cluster {content['cluster_id']}")
            marks = dict(_mark(row) for row in content["read"])
            lost = None if content["lost"] is None else str(content["lost"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Invalid(f"{self.path} is not what this service wrote: {error!r}") from error
        return RememberedReads(marks=marks, lost=lost)

    def write(self, reads: RememberedReads) -> None:
        """Durable when this returns."""
        content = {
            "cluster_id": self._cluster_id,
            "lost": reads.lost,
            "read": [
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "position": mark.position,
                    "leader_epoch": mark.leader_epoch,
                }
                for place, mark in sorted(reads.marks.items())
            ],
        }
        fresh = self.path.with_suffix(".tmp")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)


def _mark(row: dict[str, Any]) -> tuple[Place, ReadMark]:
    place = Place(row["topic"], int(row["partition"]))
    return place, ReadMark(
        position=int(row["position"]), leader_epoch=int(row["leader_epoch"]), remembered=True
    )
