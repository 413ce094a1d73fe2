"""The ids of the ledger and settings topics, kept in the state dir across restarts (H6).

A ledger that was deleted and made anew while no service looked has another id: then nothing may be
deleted or trimmed, and only this file and the cluster fact can tell.
"""

import json
import os
from pathlib import Path

from kip405.errors import Invalid
from kip405.ids import Uuid

_FILE = "topics.json"


class RememberedTopics:
    """One small file of one cluster, replaced whole."""

    def __init__(self, state_dir: Path, cluster_id: str) -> None:
        self._path = state_dir / _FILE
        self._cluster_id = cluster_id

    def read(self) -> dict[str, Uuid]:
        """Topic ids by name, empty before the first run; Invalid for a file that is not ours."""
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Invalid(f"{self._path} cannot be read: {error}") from error
        try:
            if content["cluster_id"] != self._cluster_id:
                raise Invalid(f"{self._path} belongs to cluster {content['cluster_id']}")
            return {name: Uuid.parse(text) for name, text in content["topics"].items()}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Invalid(f"{self._path} is not what this service wrote: {error!r}") from error

    def write(self, topic_ids: dict[str, Uuid]) -> None:
        """Durable when this returns."""
        content = {
            "cluster_id": self._cluster_id,
            "topics": {name: str(topic_id) for name, topic_id in sorted(topic_ids.items())},
        }
        fresh = self._path.with_suffix(".tmp")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
