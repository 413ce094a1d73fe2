"""The ACLs that a principal lacks, as values, and the error that carries them. Pure.

Code that shows or counts a missing ACL takes it from `MissingAcls.acls`, never from the text of a
message. Names of operations and resource types are those that kafka-acls.sh accepts and prints.
"""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from kip405.errors import Invalid

ANONYMOUS = "User:ANONYMOUS"
"""What brokers call a client that comes without TLS and SASL, as this service's clients do."""

CLUSTER_NAME = "kafka-cluster"
_SWITCHES = {
    "Topic": "--topic",
    "Group": "--group",
    "TransactionalId": "--transactional-id",
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """One operation on one resource, allowed to one principal."""

    resource_type: str
    resource_name: str
    operation: str
    principal: str = ANONYMOUS

    def __str__(self) -> str:
        return (
            f"principal {self.principal}, operation {self.operation}, "
            f"resource {self.resource_type}:{self.resource_name}"
        )


class MissingAcls(Invalid):
    """A broker refused, or would refuse, because these ACLs are missing; the message names them
    all.
    """

    def __init__(self, message: str, acls: Iterable[Acl]) -> None:
        super().__init__(message)
        self.acls = tuple(acls)


def topic_acl(operation: str, topic: str) -> Acl:
    return Acl(resource_type="Topic", resource_name=topic, operation=operation)


def group_acl(operation: str, group: str) -> Acl:
    return Acl(resource_type="Group", resource_name=group, operation=operation)


def cluster_acl(operation: str) -> Acl:
    return Acl(resource_type="Cluster", resource_name=CLUSTER_NAME, operation=operation)


def missing_acls(what: str, acls: Iterable[Acl]) -> MissingAcls:
    """The error for all of them at once; `what` says what was not done for want of them."""
    found = tuple(sorted(set(acls)))
    named = "; ".join(str(acl) for acl in found)
    return MissingAcls(f"{what}: missing ACL: {named}", found)


def grants(acls: Iterable[Acl]) -> tuple[str, ...]:
    """Options of kafka-acls.sh that add these ACLs, one call a principal and resource."""
    operations: dict[tuple[str, str, str], list[str]] = {}
    for acl in sorted(set(acls)):
        resource = acl.principal, acl.resource_type, acl.resource_name
        operations.setdefault(resource, []).append(acl.operation)
    return tuple(_grant(*resource, names) for resource, names in operations.items())


def _grant(principal: str, resource_type: str, resource_name: str, operations: list[str]) -> str:
    words = ["--add", "--allow-principal", principal]
    for operation in operations:
        words += ["--operation", operation]
    switch = _SWITCHES.get(resource_type)
    words += ["--cluster"] if switch is None else [switch, resource_name]
    return shlex.join(words)
