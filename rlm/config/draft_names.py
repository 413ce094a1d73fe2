"""Settings by their names in KIP-405's first draft: what is a setting today is taken as it. Pure.

That draft (version 34 of the KIP's page) had five. Two are other names of settings of this table.
One is what a running service is. Two belong to topics, which have their settings by a command. The
loader takes the names, in the file and in the environment; nothing else knows them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kip405.errors import Invalid
from kip405.settings import FLAG, Kind, RefusedAs, Setting, Table
from rlm.config.refusals import Refusals
from rlm.config.secured import environment_name
from rlm.config.service import settings

ENABLE = "remote.log.storage.enable"
DRAFT_TODAY: Mapping[str, str] = {
    "rlm_process_interval_ms": "remote.log.manager.task.interval.ms",
    "rlm_retry_interval_ms": "remote.log.manager.task.retry.backoff.ms",
}
"""The keys of today, by that draft's."""
_TODAY_ROWS = {row.key: row for row in settings().values()}


def _other_name(key: str, doc: str) -> Setting:
    today = _TODAY_ROWS[DRAFT_TODAY[key]]
    return Setting(key=key, kind=today.kind, unit=today.unit, doc=f"Is {today.key}. {doc}".strip())


def _of_a_topic(option: str, example: str) -> Callable[[Any], Any]:
    def read(_: Any) -> Any:
        raise RefusedAs(
            "is of a topic, not of the service: take it out, and say it with "
            f"`rlm topics enable TOPIC {option} {example}`"
        )

    return read


def _enabled(value: Any) -> bool:
    if value == "false" or not FLAG.read(value):
        raise RefusedAs(
            "cannot be false: a service that runs is remote storage. Do not start it, or say "
            "`rlm topics disable TOPIC`"
        )
    return True


DRAFT_ROWS = Table(
    Setting(
        key=ENABLE,
        kind=Kind(allowed="true", read=_enabled),
        doc="Says nothing more: a service that runs has it on. A topic is enabled by "
        "`rlm topics enable`.",
    ),
    Setting(
        key="remote.retention.period",
        kind=Kind(allowed="refused", read=_of_a_topic("--retention", "180d")),
        doc="Is `rlm topics enable TOPIC --retention`. That draft names no unit; the option wants "
        "one. The period counts for the whole log, which is as long as its remote part.",
    ),
    Setting(
        key="remote.retention.bytes",
        kind=Kind(allowed="refused", read=_of_a_topic("--retention-bytes", "2TiB")),
        doc="Is `rlm topics enable TOPIC --retention-bytes`, per partition. It counts the whole "
        "log, also what is not remote yet.",
    ),
    _other_name(
        "rlm_process_interval_ms",
        "That draft deletes in the same step; here trims and deletions have trim.interval.ms.",
    ),
    _other_name(
        "rlm_retry_interval_ms",
        "The wait doubles with each further failure, up to "
        "remote.log.manager.task.retry.backoff.max.ms; in that draft it is always the same.",
    ),
)
"""The names of that draft. What is refused has its command in the refusal."""


def under_todays_names(content: Mapping[str, Any], refusals: Refusals) -> dict[str, Any]:
    """What is given, with today's names. Invalid: a name that is none today, or a setting that has
    another value by its name of today. ENABLE stays, because a reader does not take it.
    """
    given = dict(content)
    for row in DRAFT_ROWS:
        value = given.pop(row.key, None)
        if value is None:
            continue
        with refusals.taken():
            checked = row.read(value)
            today = DRAFT_TODAY.get(row.key, row.key)
            if given.get(today) not in (None, checked):
                raise Invalid(
                    f"{row.key}: is another name of {today}, and they differ: {checked} and "
                    f"{given[today]}; give one of them"
                )
            given[today] = value
    return given


def draft_names_in(content: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The names of that draft that file or environment give."""
    return tuple(
        key
        for key in DRAFT_ROWS.keys
        if content.get(key) is not None or environment.get(environment_name(key))
    )
