"""What one service knows of itself, as documents for `rlm diagnose`: no record and no secret.

Settings are shown as the log shows them. On top of that every document is searched for the secrets
that this process knows, by value, so that one in an error text or a command line is masked too. Of
files only names and sizes are read. Each document is bounded.
"""

import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from kip405.ids import PartitionKey
from kip405.process import software_version
from kip405.settings import (
    MASK,
    Secret,
    is_secret_name,
    masked,
    rows_of,
    spellings_of,
    without,
)
from rlm.api.call_metadata import Tokens
from rlm.config import CommonConfig
from rlm.plans.problems import Problem
from rlm.remote_log.ports import Settings
from rlmm.ledger import PartitionLedger
from rsm_plugins.threads import Threads

MOST_BYTES = 4 << 20
MOST_FILES = 20_000
_CUT = b"\n(the rest is left out)\n"
_MOST_SECRET_BYTES = 1 << 20
_LEAST_SECRET = 6
"""Shorter ones would mask what is no secret."""


class Ledger(Protocol):
    """The metadata of segments (rlmm's manager)."""

    @property
    def problem(self) -> str | None: ...

    @property
    def is_ready(self) -> bool: ...

    def partitions(self) -> tuple[PartitionKey, ...]: ...

    def ledger(self, key: PartitionKey) -> PartitionLedger: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceDiagnosis:
    """Implements rlm.api.diagnosis.Documents. `settings_shown`: by key, fit for a log. `secrets`:
    all that this process knows.
    """

    node_id: int
    settings_shown: Callable[[], Mapping[str, str]]
    secrets: Callable[[], Iterable[str]]
    metrics: Callable[[], bytes]
    problems: Callable[[], Sequence[Problem]]
    ledger: Ledger
    settings: Settings
    log_dirs: Sequence[Path]
    threads: Threads

    async def documents(self) -> Mapping[str, bytes]:
        """By file name."""
        made: dict[str, str] = {
            "versions.json": _json(self._versions()),
            "settings.json": _json(self.settings_shown()),
            "problems.json": _json([_problem(one) for one in self.problems()]),
            "ledger.json": _json(self._ledger()),
            "log-dirs.json": _json(await self.threads.run(_listed, self.log_dirs)),
            "metrics.txt": self.metrics().decode("utf-8", "replace"),
        }
        secrets = await self.threads.run(self._secrets)
        return {name: _fit(masked(text, secrets).encode()) for name, text in made.items()}

    async def mask(self, answer: Message) -> None:
        """Replace secrets in every text of an answer, which nobody else uses meanwhile."""
        await self.threads.run(lambda: mask_answer(answer, self._secrets()))

    def _secrets(self) -> list[str]:
        return [one for one in self.secrets() if len(one) >= _LEAST_SECRET]

    def _versions(self) -> dict[str, object]:
        return {
            "node_id": self.node_id,
            "kafka-rlm": software_version(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "glibc": " ".join(platform.libc_ver()),
            "processors": os.cpu_count(),
        }

    def _ledger(self) -> dict[str, object]:
        topics: dict[str, Counter[str]] = {}
        for key in self.ledger.partitions():
            ledger = self.ledger.ledger(key)
            counts = topics.setdefault(str(key.topic_id), Counter())
            counts["partitions"] += 1
            counts["records"] += len(ledger.entries)
            counts["finished_segments"] += ledger.finished_total.segments
            counts["finished_bytes"] += ledger.finished_total.size_bytes
        names = {str(one.topic_id): one.name for one in self.settings.view.topics()}
        return {
            "is_ready": self.ledger.is_ready,
            "problem": self.ledger.problem,
            "settings_problem": self.settings.problem,
            "topics": [
                {"topic": names.get(topic_id, ""), "topic_id": topic_id, **counts}
                for topic_id, counts in sorted(topics.items())
            ],
        }


def secrets_of(config: CommonConfig, tokens: Callable[[], Tokens]) -> Callable[[], Iterator[str]]:
    """All secrets of a configuration, also those in files that it names, those of its stores, and
    the tokens of the API now. Blocks.
    """

    def found() -> Iterator[str]:
        for name, row in rows_of(type(config)).items():
            value = getattr(config, name)
            if isinstance(value, Secret):
                yield value.reveal()
            elif isinstance(value, Path) and is_secret_name(row.key):
                yield from _lines_of(value)
        for store in config.stores:
            shown = store.shown()
            yield from (
                str(value)
                for key, value in store.config.items()
                if shown.get(f"{store.where}{key}") == MASK
            )
        yield from tokens()

    return found


def _lines_of(path: Path) -> list[str]:
    """Of a file with a password or tokens; none of what cannot be read now."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_SECRET_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines()]


def mask_answer(answer: Message, secrets: Sequence[str]) -> None:
    """Replace the secrets in every text of an answer of the API."""
    _mask(answer, spellings_of(secrets))


def _mask(answer: Message, spellings: Sequence[str]) -> None:
    """Texts, lists of them and the messages in it; its maps have numbers and bytes."""
    for field, value in answer.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            if field.is_repeated:
                value[:] = [without(one, spellings) for one in value]
            else:
                setattr(answer, field.name, without(value, spellings))
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not _is_map(field):
            for one in value if field.is_repeated else [value]:
                _mask(one, spellings)


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


def _fit(document: bytes) -> bytes:
    return document if len(document) <= MOST_BYTES else document[: MOST_BYTES - len(_CUT)] + _CUT


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False)


def _problem(one: Problem) -> dict[str, object]:
    row = asdict(one)
    return {**row, "kind": one.kind.value, "severity": one.severity.value}


def _listed(log_dirs: Sequence[Path]) -> dict[str, object]:
    """Names and sizes; the first MOST_FILES of all directories together."""
    files: dict[str, dict[str, int]] = {}
    errors: list[str] = []
    left = MOST_FILES
    for log_dir in log_dirs:
        rows = files.setdefault(str(log_dir), {})
        for folder, folders, names in os.walk(log_dir, onerror=lambda one: errors.append(str(one))):
            folders.sort()
            for name in sorted(names):
                if left <= 0:
                    return {"files": files, "errors": errors, "is_complete": False}
                path = Path(folder, name)
                try:
                    size = path.lstat().st_size
                except OSError:
                    continue  # the broker has deleted or renamed it
                rows[str(path.relative_to(log_dir))] = size
                left -= 1
    return {"files": files, "errors": errors, "is_complete": True}
