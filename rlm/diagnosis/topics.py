"""Checks of enabled topics: their retention and its owner, durability, what became of them. Pure.

Only an answer of every live broker proves that retention is off, because each may lead next.
"""

from collections.abc import Iterator

from kip405.errors import Invalid
from rlm.diagnosis.checks import Check, CheckFinding, alarm, of_problem, warning
from rlm.diagnosis.observed import NotAsked, Observed, ObservedTopic, TopicConfig, Unasked, known
from rlm.plans.problems import human_duration
from rlm.remote_log.snapshots import bounded_retention
from rlm.remote_log.topic_refs import topic_records
from rlm.topics.recreated import recreated, recreated_findings
from rlm.topics.rules import durability_of, durability_warnings, refuse, value_of
from rlm.topics.takeover import EXTERNAL, bounds_of, is_foreign_bound, is_taken_over

_OFF = (
    "Set retention.ms and retention.bytes to -1 on the topic and in what owns its configuration; "
    "the total retention is that of `rlm topics describe`, and `rlm topics accept-retention` takes "
    "over the one that somebody has set."
)
_OWNER = (
    "Let one side own retention.ms and retention.bytes: take them out of the other tool, or set "
    "them to -1 there and retention.takeover to external here."
)
_DURABLE = (
    "Set min.insync.replicas to 2 or more and unclean.leader.election.enable to false on the "
    "topic, or at the brokers."
)
_DELETE_DELAY = "file.delete.delay.ms"


def _bounded(site: Observed) -> Iterator[CheckFinding]:
    for topic in known(site.topics):
        if topic.present is None or not is_taken_over(topic.record) or _is_given_back(topic):
            continue
        for node_id, config in _answers(topic):
            bounded = bounded_retention(config)
            if bounded is not None:
                yield alarm(
                    _subject(topic),
                    f"the retention of broker {node_id} is {bounded}: it may delete records that "
                    "are not copied, and nothing is trimmed",
                    _OFF,
                )


def _is_given_back(topic: ObservedTopic) -> bool:
    """Then a disk is nearly full, which is a finding of its own (H18)."""
    given = topic.record.given_back
    return given is not None and given.ended_ms is None


def _owned_by_others(site: Observed) -> Iterator[CheckFinding]:
    is_external = site.config.retention_takeover == EXTERNAL
    for topic in known(site.topics):
        if topic.present is None or not is_taken_over(topic.record) or is_external:
            continue
        for _, config in _answers(topic):
            if is_foreign_bound(topic.record, config):
                bounds = bounds_of(config) or "not set on the topic itself"
                yield warning(
                    _subject(topic),
                    f"something else sets its retention too ({bounds}), perhaps a tool that "
                    "applies its own values again and again: the service sets it back twice in 15 "
                    "minutes, then leaves it",
                    _OWNER,
                )
                break


def _fit(site: Observed) -> Iterator[CheckFinding]:
    for topic in known(site.topics):
        if topic.present is None:
            continue
        for _, config in _answers(topic):
            try:
                refuse(topic.present, config)
            except Invalid as error:
                yield alarm(
                    _subject(topic),
                    f"it is enabled, and nothing of it is copied: {error}",
                    "set the configuration back, or `rlm topics disable` it",
                )
                break


def _durable(site: Observed) -> Iterator[CheckFinding]:
    for topic in known(site.topics):
        if topic.present is None:
            continue
        texts: dict[str, None] = {}
        for _, config in _answers(topic):
            texts |= dict.fromkeys(durability_warnings(durability_of(config), topic.present))
        for text in texts:
            yield warning(_subject(topic), text, _DURABLE)


def _delete_delay(site: Observed) -> Iterator[CheckFinding]:
    """Where the brokers' own retention acts, the rest of a closed segment's life is this delay."""
    interval_ms = site.config.remote_log_manager_task_interval_ms
    for topic in known(site.topics):
        for _, config in _answers(topic) if topic.present is not None else ():
            delay = value_of(config, _DELETE_DELAY)
            if delay.isdigit() and int(delay) < interval_ms:
                yield warning(
                    _subject(topic),
                    f"the broker removes a deleted segment after {human_duration(int(delay))}, and "
                    f"copies begin every {human_duration(interval_ms)}: one that its retention "
                    "deletes may be gone before it is copied",
                    f"set log.segment.delete.delay.ms of the brokers, or {_DELETE_DELAY} of the "
                    f"topic, to more than {interval_ms}",
                )
                break


def _gone(site: Observed) -> Iterator[CheckFinding]:
    topics = known(site.topics)
    records = topic_records(known(site.settings).view.records())
    present = {one.record.name: one.description for one in topics}
    ids = {name: found.topic_id for name, found in present.items() if found is not None}
    for finding in recreated_findings(recreated(records, ids), {}):
        yield of_problem(finding, "Enable the present topic, or disable the former one.")
    for topic in topics:
        if topic.description is None and topic.record.state == "enabled":
            name = topic.record.name
            yield alarm(
                _subject(topic),
                f"the broker knows no topic of this name (enabled under id "
                f"{topic.record.topic_id}): nothing of it is copied or trimmed",
                f"if it was deleted, `rlm topics disable {name}`; otherwise grant Describe on it",
            )


def _answers(topic: ObservedTopic) -> Iterator[tuple[int, TopicConfig]]:
    """The configuration by each broker. NotAsked: a broker did not answer."""
    for node_id, config in sorted(topic.configs.items()):
        if isinstance(config, Unasked):
            raise NotAsked(f"{topic.record.name} of broker {node_id}: {config.reason}")
        yield node_id, config


def _subject(topic: ObservedTopic) -> str:
    return f"topic {topic.record.name}"


CHECKS = (
    Check(
        name="broker-retention",
        asks="Is the retention of every live broker off for topics in mode tier?",
        remedy=_OFF,
        decide=_bounded,
    ),
    Check(
        name="config-owner",
        asks="Does something else than the service set the retention of topics in mode tier?",
        remedy=_OWNER,
        decide=_owned_by_others,
    ),
    Check(
        name="topic-rules",
        asks="Does each enabled topic still have exactly cleanup.policy=delete, and no tiering of "
        "Kafka's own?",
        remedy="Set the configuration back, or `rlm topics disable` the topic.",
        decide=_fit,
    ),
    Check(
        name="durability",
        asks="May a new leader of an enabled topic lack records that were acknowledged?",
        remedy=_DURABLE,
        decide=_durable,
    ),
    Check(
        name="delete-delay",
        asks="Do brokers keep deleted segments of enabled topics for longer than copies take to "
        "begin?",
        remedy="Raise log.segment.delete.delay.ms of the brokers above "
        "remote.log.manager.task.interval.ms.",
        decide=_delete_delay,
    ),
    Check(
        name="recreated-topics",
        asks="Does each enabled topic still exist under the id that was enabled?",
        remedy="Enable the present topic, or disable the former one.",
        decide=_gone,
    ),
)
