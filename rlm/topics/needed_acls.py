"""Lists the ACLs that a service needs, and those of them that a broker does not grant. Pure.

    resource                 operations
    the cluster              DescribeConfigs; with a topic in mode tier Describe too (groups, H19)
    ledger, settings         Read, Write, Describe, DescribeConfigs
    a topic in mode copy     Describe, DescribeConfigs
    a topic in mode tier     Read, Delete, AlterConfigs too (without retention.takeover=external)
    __consumer_offsets       with a topic in mode tier: Describe

Groups (Describe) are many and short-lived: the code that reads them reports what is missing there.
"""

from collections.abc import Iterable, Mapping

from kip405.acls import CLUSTER_NAME, Acl, cluster_acl, topic_acl
from rlm.topics.takeover import is_taken_over
from rlmm.settings_records import TopicRecord
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

GROUPS_TOPIC = "__consumer_offsets"


_OF_OUR_TOPICS = ("Read", "Write", "Describe", "DescribeConfigs")


_OF_COPY = ("Describe", "DescribeConfigs")


_OF_TIER = ("Read", "Delete")


_OF_TAKEOVER = ("AlterConfigs",)


Allowed = Mapping[str, frozenset[str] | None]
"""Operations by resource name; None or no entry = not known."""


def needed_acls(records: Iterable[TopicRecord], *, alters_configs: bool) -> tuple[Acl, ...]:
    """For the enabled topics among these, whichever broker leads them. `alters_configs`: whether
    the service sets their retention itself.
    """
    of_tier = (*_OF_COPY, *_OF_TIER, *(_OF_TAKEOVER if alters_configs else ()))
    enabled = [record for record in records if record.state == "enabled"]
    needed = [cluster_acl("DescribeConfigs")]
    if any(is_taken_over(record) for record in enabled):
        needed += [cluster_acl("Describe"), topic_acl("Describe", GROUPS_TOPIC)]
    for topic in (LEDGER_TOPIC, SETTINGS_TOPIC):
        needed += [topic_acl(operation, topic) for operation in _OF_OUR_TOPICS]
    for record in enabled:
        operations = of_tier if is_taken_over(record) else _OF_COPY
        needed += [topic_acl(operation, record.name) for operation in operations]
    return tuple(sorted(set(needed)))


def not_granted(needed: Iterable[Acl], allowed: Allowed) -> tuple[Acl, ...]:
    """ACLs that are known to be missing. Without Describe a broker reports no other operation of
    that resource, so no other is named.
    """
    return tuple(acl for acl in needed if _is_missing(acl, allowed.get(acl.resource_name)))


def topics_of(needed: Iterable[Acl]) -> tuple[str, ...]:
    """The topics whose operations must be requested."""
    names = {acl.resource_name for acl in needed if acl.resource_name != CLUSTER_NAME}
    return tuple(sorted(names))


def _is_missing(acl: Acl, operations: frozenset[str] | None) -> bool:
    if operations is None:
        return False
    return acl.operation == "Describe" if not operations else acl.operation not in operations
