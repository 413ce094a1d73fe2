"""Fields that some settings records have, as JSON: retention given back under disk pressure, in
records of topics and in heartbeats, and the layout that a topic has chosen. Pure.

Each field is written only where there is something to write, so that records without it stay as
they were.
"""

from collections.abc import Mapping
from typing import Any

from kip405.ids import Uuid
from kip405.segments import Layout
from rlmm.json_fields import Json, integer, text
from rlmm.settings_records import GivenBack


def given_back_fields(given: GivenBack | None) -> dict[str, Any]:
    """`given_back` of a topic."""
    if given is None:
        return {}
    former = given.former_limits
    fields = {
        "limits": dict(given.limits),
        "since_ms": given.since_ms,
        **({} if given.ended_ms is None else {"ended_ms": given.ended_ms}),
        **({"former_limits": dict(former)} if former else {}),
    }
    return {"given_back": fields}


def read_given_back(document: Json) -> GivenBack | None:
    """None where the document has none."""
    found = document.get("given_back")
    if found is None:
        return None
    return GivenBack(
        limits=_limits(found["limits"]),
        since_ms=integer(found, "since_ms"),
        ended_ms=integer(found, "ended_ms") if "ended_ms" in found else None,
        former_limits=_limits(found.get("former_limits", {})),
    )


def give_back_fields(topics: Mapping[Uuid, int]) -> dict[str, Any]:
    """`give_back` of a heartbeat: retention.bytes by topic id."""
    if not topics:
        return {}
    return {"give_back": {str(topic_id): size for topic_id, size in topics.items()}}


def read_give_back(document: Json) -> dict[Uuid, int]:
    """Empty where the document has none."""
    found = document.get("give_back", {})
    return {Uuid.parse(topic_id): integer(found, topic_id) for topic_id in found}


def _limits(limits: Json) -> dict[str, str]:
    return {name: text(limits, name) for name in limits}


def layout_fields(layout: Layout | None) -> dict[str, str]:
    """`layout` of a topic."""
    return {} if layout is None else {"layout": str(layout)}


def read_layout(document: Json) -> Layout | None:
    """None where the topic has not chosen one."""
    return Layout.parse(text(document, "layout")) if "layout" in document else None
