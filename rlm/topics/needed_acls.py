"""Lists the ACLs that a service needs, and those of them that a broker does not grant. Pure.

Which they are is in `rlm/plans/rights.py`; here they follow the topics that are enabled. Groups are
many and short-lived: the code that reads them reports what is missing there.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from kip405.acls import CLUSTER_NAME, Acl, cluster_acl, topic_acl
from rlm.plans.rights import EACH_TOPIC, GROUPS_TOPIC, Role, When, operations_on
from rlm.topics.takeover import is_taken_over
from rlmm.settings_records import TopicRecord
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

_COPY_CASES = frozenset({When.ALWAYS})
_TIER_CASES = _COPY_CASES | {When.TIER, When.TIER_OR_API}

Allowed = Mapping[str, frozenset[str] | None]
"""Operations by resource name; None or no entry = not known."""


def needed_acls(records: Iterable[TopicRecord], *, alters_configs: bool) -> tuple[Acl, ...]:
    """For the enabled topics among these, whichever broker leads them. `alters_configs`: whether
    the service sets their retention itself.
    """
    of_tier = _TIER_CASES | ({When.TAKEOVER} if alters_configs else set())
    enabled = [record for record in records if record.state == "enabled"]
    has_tier = any(is_taken_over(record) for record in enabled)
    needed = [*_acls_of_service(CLUSTER_NAME, _TIER_CASES if has_tier else _COPY_CASES)]
    if has_tier:
        needed += _acls_of_service(GROUPS_TOPIC, _TIER_CASES)
    for topic in (LEDGER_TOPIC, SETTINGS_TOPIC):
        needed += _acls_of_service(topic, _COPY_CASES)
    for record in enabled:
        cases = of_tier if is_taken_over(record) else _COPY_CASES
        needed += _acls_of_service(EACH_TOPIC, cases, record.name)
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


def _acls_of_service(name: str, cases: Collection[When], topic: str = "") -> Iterator[Acl]:
    """Of one resource of the table; `topic`: the one that EACH_TOPIC stands for."""
    for operation in operations_on(Role.SERVICE, name, cases):
        is_cluster = name == CLUSTER_NAME
        yield cluster_acl(operation) if is_cluster else topic_acl(operation, topic or name)


def _is_missing(acl: Acl, operations: frozenset[str] | None) -> bool:
    if operations is None:
        return False
    return acl.operation == "Describe" if not operations else acl.operation not in operations
