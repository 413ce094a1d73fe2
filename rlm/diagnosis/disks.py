"""Checks of log.dirs: whose they are, what cannot be read of them, what they lack, space. Pure."""

from collections.abc import Iterator

from kip405.errors import Invalid
from rlm.diagnosis.checks import Check, CheckFinding, alarm, of_problem
from rlm.diagnosis.observed import Observed, ObservedDisks, ObservedTopic, PartitionDirectory, known
from rlm.log_dir.identity import check_identity, check_topic_id
from rlm.plans.disk import disk_findings

_WHOSE = (
    "Name the log.dirs of the broker at broker.direct.address in log.dirs, and mount its volume "
    "and no other."
)
_READABLE = (
    "Let the service's user read the directory and all that is in it, e.g. by the broker's group "
    "and mode g+rX."
)
_ROOM = (
    "Make room in the directory, give it a larger disk, or shorten local retention (`rlm topics "
    "enable --local-retention-ms`)."
)


def _whose(site: Observed) -> Iterator[CheckFinding]:
    config = site.config
    for path, identity in known(site.disks).identities.items():
        subject = _log_dir(path)
        if isinstance(identity, str):
            yield alarm(subject, identity, _WHOSE)
            continue
        try:
            check_identity(
                identity,
                cluster_id=config.cluster_id,
                node_id=config.node_id,
                source="the configuration",
            )
        except Invalid as error:
            yield alarm(subject, str(error), _WHOSE)


def _readable(site: Observed) -> Iterator[CheckFinding]:
    disks = known(site.disks)
    for path, why in disks.faults.items():
        yield alarm(_log_dir(path), why, _READABLE)
    for directories in disks.partitions.values():
        for one in directories:
            if one.fault:
                text = f"nothing of this partition can be copied: {one.fault}"
                yield alarm(f"directory {one.path}", text, _READABLE)


def _partitions(site: Observed) -> Iterator[CheckFinding]:
    """What the broker has of enabled topics must be here, once, and be that topic."""
    disks = known(site.disks)
    for topic in known(site.topics):
        described = topic.present
        for row in () if described is None else described.partitions.values():
            if site.config.node_id in row.replicas:
                yield from _directory(disks, topic, row.partition)


def _directory(
    disks: ObservedDisks, topic: ObservedTopic, partition: int
) -> Iterator[CheckFinding]:
    name = topic.record.name
    found = disks.partitions.get((name, partition), ())
    subject = f"{name}-{partition}"
    if not found:
        paths = ", ".join(disks.identities)
        text = f"the broker has a replica, and none of log.dirs {paths} has its directory"
        yield alarm(subject, f"{text}: it is not copied", _WHOSE)
    elif len(found) > 1:
        yield alarm(
            subject,
            f"it is in {' and in '.join(one.path for one in found)}: which of them is the "
            "broker's is not known, so it is not copied",
            "remove the directory that the broker does not use, while the broker is stopped",
        )
    for one in found:
        yield from _of_topic(one, topic, partition)


def _of_topic(
    directory: PartitionDirectory, topic: ObservedTopic, partition: int
) -> Iterator[CheckFinding]:
    if directory.topic_id is None:
        return  # a broker writes it a moment later
    name = topic.record.name
    try:
        check_topic_id(name, partition, directory.topic_id, topic.record.topic_id)
    except Invalid as error:
        yield alarm(f"{name}-{partition}", str(error), _WHOSE)


def _space(site: Observed) -> Iterator[CheckFinding]:
    config = site.config
    for one in disk_findings(
        known(site.disks).spaces,
        floor_bytes=config.disk_min_free_bytes,
        warn_ms=config.problem_disk_full_ms,
    ):
        yield of_problem(one, _ROOM)


def _log_dir(path: str) -> str:
    return f"log dir {path}"


CHECKS = (
    Check(
        name="log-dirs",
        asks="Are log.dirs those of this node and cluster?",
        remedy=_WHOSE,
        decide=_whose,
    ),
    Check(
        name="log-dirs-readable",
        asks="Can this user read log.dirs, down to the segments of each partition?",
        remedy=_READABLE,
        decide=_readable,
    ),
    Check(
        name="partition-directories",
        asks="Is each partition of an enabled topic that the broker has in log.dirs, once, and of "
        "that topic?",
        remedy="Name all log.dirs of the broker, and those of no other.",
        decide=_partitions,
    ),
    Check(
        name="disk-space",
        asks="Do log.dirs have more free space than disk.min.free.bytes?",
        remedy=_ROOM,
        decide=_space,
    ),
)
