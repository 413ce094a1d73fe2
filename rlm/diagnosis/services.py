"""Checks of ledger and settings, and of the services by their heartbeats and rights. Pure.

Nobody's clock is believed: a service counts as silent by the brokers' times (H16).
"""

from collections.abc import Iterator, Mapping

from kip405.ids import Uuid
from rlm.diagnosis.checks import Check, CheckFinding, alarm, of_problem, warning
from rlm.diagnosis.observed import NotAsked, Observed, ObservedOwnTopic, ObservedSettings, known
from rlm.plans.problem_rules import acl_finding, peer_findings, skew_finding
from rlm.plans.problems import human_duration
from rlm.plans.services import DEAD_AFTER_BEATS
from rlm.service.problems import service_limits
from rlmm.settings_view import MOST_SKEW_MS
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC, TopicGuard, ledger_spec, settings_spec

_OWN_TOPIC = "Alter the topic's configuration back; docs/reference/formats.md has what it must be."
_LOST = {
    LEDGER_TOPIC: "Run `rlm ledger rebuild --from-store`, which lists what comes back.",
    SETTINGS_TOPIC: "Restore the topic from a backup; `rlm download --plugin-config` writes the "
    "data of topics without it.",
}
_START = "Start `rlm serve` beside the broker, or see why it does not publish its heartbeat."
_CLOCK = "Set the clocks of services and brokers right, e.g. by chrony."
_VERSION = "Upgrade the other services too; one after the other is fine."
_REPORTED = (
    "Do what the sentence says; docs/reference/problems.md has what each kind means, and `rlm "
    "status` since when."
)
_GRANT = "Grant the ACL: `rlm acls --principal P` prints the commands."


def _own_topics(site: Observed) -> Iterator[CheckFinding]:
    settings, found = known(site.settings), known(site.own_topics)
    factor = site.config.rlmm_config_remote_log_metadata_topic_replication_factor
    if not settings.is_there:
        yield from _lost_settings(site)
        return
    for spec in (settings_spec(factor), ledger_spec(factor)):
        guard = TopicGuard(spec, _recorded(settings).get(spec.name))
        topic = found[spec.name]
        guard.check(topic.found)
        if guard.problem is not None:
            remedy = _LOST[spec.name] if guard.is_lost else _OWN_TOPIC
            yield alarm(f"topic {spec.name}", f"nothing is trimmed: {guard.problem}", remedy)
        elif topic.least_replicas < factor:
            yield _too_few_replicas(spec.name, topic, factor)


def _lost_settings(site: Observed) -> Iterator[CheckFinding]:
    """The first service of a cluster makes both topics, this one before all else (H6)."""
    trace = _trace_of_services(site)
    if trace is not None:
        yield alarm(
            f"topic {SETTINGS_TOPIC}",
            f"nothing is copied, trimmed or read: the topic is missing, and services have run "
            f"here: {trace}",
            _LOST[SETTINGS_TOPIC],
        )


def _trace_of_services(site: Observed) -> str | None:
    """What shows that a service has run in this cluster; None = nothing does, and all was asked."""
    if known(site.own_topics)[LEDGER_TOPIC].found is not None:
        return f"topic {LEDGER_TOPIC} exists"
    if known(site.remembered):
        return f"state.dir {site.config.state_dir} remembers the topics"
    stores = known(site.stores)
    for store in stores:
        if store.identity is not None and store.identity.cluster_id == site.config.cluster_id:
            return f"store {store.name} at {store.uri} is of this cluster"
    for store in stores:
        if store.problem:
            raise NotAsked(f"whether services have run here, store {store.name}: {store.problem}")
    return None


def _too_few_replicas(name: str, topic: ObservedOwnTopic, factor: int) -> CheckFinding:
    return warning(
        f"topic {name}",
        f"a partition of it has {topic.least_replicas} replicas, and the configuration says "
        f"{factor}: with its last broker the metadata of all remote data is lost",
        "add replicas with kafka-reassign-partitions.sh, or set "
        "rlmm.config.remote.log.metadata.topic.replication.factor to what is meant",
    )


def _recorded(settings: ObservedSettings) -> Mapping[str, Uuid]:
    """The ids of both topics as the cluster's record has them."""
    cluster = settings.view.cluster
    if cluster is None:
        return {}
    return {LEDGER_TOPIC: cluster.ledger_topic_id, SETTINGS_TOPIC: cluster.settings_topic_id}


def _settings(site: Observed) -> Iterator[CheckFinding]:
    view, cluster_id = known(site.settings).view, site.config.cluster_id
    if view.problem is not None:
        yield alarm(
            f"topic {SETTINGS_TOPIC}",
            f"{view.problem}: nothing is trimmed or deleted",
            "upgrade this service to the version that has written the record",
        )
    cluster = view.cluster
    if cluster is not None and cluster.cluster_id != cluster_id:
        yield alarm(
            f"topic {SETTINGS_TOPIC}",
            f"it belongs to cluster {cluster.cluster_id}, cluster.id is {cluster_id}",
            "give each cluster topics of its own: this one was copied or mirrored from another",
        )


def _heartbeats(site: Observed) -> Iterator[CheckFinding]:
    """By the rule of running services, which have followed heartbeats for long enough (H18)."""
    settings, limits = known(site.settings), service_limits(site.config)
    ages_ms = {one.node_id: _age_ms(settings, one.key) for one, _ in settings.view.services()}
    live = [node for node, age_ms in ages_ms.items() if age_ms <= _dead_after_ms(site)]
    for node_id, topics in sorted(_replicas(site).items()):
        for finding in peer_findings({node_id: topics}, live, limits, limits.peers_ms + 1):
            heard = "it has never published a heartbeat"
            if node_id in ages_ms:
                heard = f"it was not heard for {human_duration(ages_ms[node_id])}"
            yield alarm(finding.subject, f"{finding.text}; {heard}", _START)


def _replicas(site: Observed) -> dict[int, set[str]]:
    """Names of enabled topics by the nodes that have replicas of them. Where addresses are
    rewritten, every broker needs a service.
    """
    found: dict[int, set[str]] = {}
    for topic in known(site.topics):
        described = topic.present
        for row in () if described is None else described.partitions.values():
            for node_id in row.replicas:
                found.setdefault(node_id, set()).add(topic.record.name)
    if found and site.config.rewrites_addresses:
        for node in known(site.broker).nodes:
            found.setdefault(node.node_id, set())
    return found


def _clocks(site: Observed) -> Iterator[CheckFinding]:
    settings = known(site.settings)
    for skew in settings.view.clock_skews():
        if _age_ms(settings, skew.who) <= _dead_after_ms(site):
            who = skew.who if skew.node_id < 0 else f"node {skew.node_id}"
            yield of_problem(skew_finding(who, skew.skew_ms), _CLOCK)


def _versions(site: Observed) -> Iterator[CheckFinding]:
    """Of services and readers that are heard."""
    settings, dead_ms = known(site.settings), _dead_after_ms(site)
    by_version: dict[str, list[str]] = {}
    beats = [(f"node {one.node_id}", one.key, one.version) for one, _ in settings.view.services()]
    beats += [
        (f"reader {one.grpc_address}", one.key, one.version) for one, _ in settings.view.readers()
    ]
    for who, key, version in beats:
        if _age_ms(settings, key) <= dead_ms:
            by_version.setdefault(version or "unknown", []).append(who)
    if len(by_version) > 1:
        shares = "; ".join(f"{one} at {', '.join(by_version[one])}" for one in sorted(by_version))
        yield warning(
            "services",
            f"services of different versions run: {shares}",
            _VERSION,
        )


def _reported(site: Observed) -> Iterator[CheckFinding]:
    """What only time shows: the growth of disks, copies that fail, trims that are refused."""
    service = None if site.service is None else known(site.service)
    for one in () if service is None else service.problems:
        yield CheckFinding(
            severity=one.severity,
            subject=one.subject,
            text=f"{one.text} [{one.kind}]",
            remedy=_REPORTED,
        )


def _rights(site: Observed) -> Iterator[CheckFinding]:
    """Which topics are enabled must be known before none counts as missing."""
    missing = known(site.missing_acls)
    for acl in missing:
        yield of_problem(acl_finding(acl), _GRANT)
    if not missing:
        known(site.settings)


def _age_ms(settings: ObservedSettings, key: str) -> int:
    """How old a heartbeat certainly is; where no service is heard any more, by the clock of this
    machine, which may be a minute wrong.
    """
    certain_ms = settings.view.certain_age_ms(
        key, monotonic_ms=settings.monotonic_ms, now_ms=settings.now_ms
    )
    found = settings.view.get(key)
    if found is None or found.times is None:
        return certain_ms
    return max(certain_ms, settings.now_ms - found.times.appended_ms - MOST_SKEW_MS)


def _dead_after_ms(site: Observed) -> int:
    return DEAD_AFTER_BEATS * site.config.heartbeat_interval_ms


CHECKS = (
    Check(
        name="own-topics",
        asks="Are ledger and settings the topics that the cluster has recorded, with the "
        "configuration and the replicas that they need?",
        remedy=f"{_OWN_TOPIC} A lost ledger comes back by `rlm ledger rebuild`.",
        decide=_own_topics,
    ),
    Check(
        name="settings",
        asks="Can every record of the settings topic be read, and is it of this cluster?",
        remedy="Run the newest version everywhere; do not mirror the topic from another cluster.",
        decide=_settings,
    ),
    Check(
        name="heartbeats",
        asks="Does every broker with a replica of an enabled topic have a service that was heard?",
        remedy=_START,
        decide=_heartbeats,
    ),
    Check(
        name="clocks",
        asks="Do the clocks of services differ from the brokers' by a minute at most?",
        remedy=_CLOCK,
        decide=_clocks,
    ),
    Check(
        name="versions",
        asks="Are all services and readers that were heard of one version?",
        remedy=_VERSION,
        decide=_versions,
    ),
    Check(
        name="problems",
        asks="Do the running services report problems: full disks and their growth, copies that "
        "fail, trims that are refused, lost segments?",
        remedy=_REPORTED,
        decide=_reported,
    ),
    Check(
        name="acls",
        asks="Has the service's principal every ACL that its enabled topics need?",
        remedy=_GRANT,
        decide=_rights,
    ),
)
