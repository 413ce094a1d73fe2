"""Freezes and copy limits, which commands decide for everything or for one topic or node, as JSON.
Pure.

What the key of a record says is not repeated in its value.
"""

from typing import Any

from kip405.ids import Uuid
from rlmm.json_fields import Json, extra_fields, integer, text, texts
from rlmm.settings_records import CopyLimitRecord, FreezeRecord

_FREEZE = ("stopped", "by", "why")
_COPY_LIMIT = ("bytes_per_second", "by", "decided_ms")


def command_fields(record: FreezeRecord | CopyLimitRecord) -> dict[str, Any]:
    """Fields of the value in their written order."""
    if isinstance(record, FreezeRecord):
        return {"stopped": list(record.stopped), "by": record.by, "why": record.why}
    return {name: getattr(record, name) for name in _COPY_LIMIT}


def read_freeze(rest: str, document: Json) -> FreezeRecord:
    """`rest`: the topic id, empty = every topic."""
    return FreezeRecord(
        topic_id=Uuid.parse(rest) if rest else None,
        stopped=texts(document, "stopped"),
        by=text(document, "by"),
        why=text(document, "why"),
        extra=extra_fields(document, *_FREEZE),
    )


def read_copy_limit(rest: str, document: Json) -> CopyLimitRecord:
    """`rest`: the node id, empty = every service. ValueError: a rate that is too low."""
    return CopyLimitRecord(
        node_id=int(rest) if rest else None,
        bytes_per_second=integer(document, "bytes_per_second"),
        by=text(document, "by"),
        decided_ms=integer(document, "decided_ms"),
        extra=extra_fields(document, *_COPY_LIMIT),
    )
