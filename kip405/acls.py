"""The ACLs that a principal lacks, as values, and the error that carries them. Pure.

Code that shows or counts a missing ACL takes it from `MissingAcls.acls`, never from the text of a
message. Names of operations and resource types are those that kafka-acls.sh accepts and prints.
"""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from kip405.errors import Invalid

ANONYMOUS = "User:ANONYMOUS"
"""What brokers call a client that comes without TLS and SASL."""

OUR_PRINCIPAL = "the service's principal"
"""Whoever that is: code that is refused by a broker does not know, and often nobody does."""
_NO_NAME = "PRINCIPAL"  # in a command, for a reader to replace

CLUSTER_NAME = "kafka-cluster"
Pattern = Literal["literal", "prefixed"]
"""How Kafka takes the name of a resource. A literal `*` is every resource of the type."""

PREFIXED: Pattern = "prefixed"
EVERY_PRINCIPAL = "User:*"
ALL_OPERATIONS = "All"
_SWITCHES = {
    "Topic": "--topic",
    "Group": "--group",
    "TransactionalId": "--transactional-id",
    "User": "--user-principal",
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """One operation on one resource, or on all whose names begin so, allowed to one principal."""

    resource_type: str
    resource_name: str
    operation: str
    principal: str = OUR_PRINCIPAL
    pattern: Pattern = "literal"

    def __str__(self) -> str:
        prefix = "prefix " if self.pattern == PREFIXED else ""
        is_named = self.principal != OUR_PRINCIPAL
        return (
            f"{'principal ' if is_named else ''}{self.principal}, operation {self.operation}, "
            f"resource {self.resource_type}:{prefix}{self.resource_name}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    """One ACL that the cluster has, whomever it allows or denies what."""

    resource_type: str
    resource_name: str
    pattern: Pattern
    principal: str
    host: str
    operation: str
    is_denied: bool

    def __str__(self) -> str:
        kind = "denied" if self.is_denied else "allowed"
        prefix = "prefix " if self.pattern == PREFIXED else ""
        return (
            f"{kind} {self.operation} on {self.resource_type}:{prefix}{self.resource_name} "
            f"to {self.principal} from host {self.host}"
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


def user_acl(operation: str, user: str, *, principal: str) -> Acl:
    """What `principal` may do with another one (KIP-373); `user` begins with `User:`."""
    return Acl(resource_type="User", resource_name=user, operation=operation, principal=principal)


def cluster_acl(operation: str) -> Acl:
    return Acl(resource_type="Cluster", resource_name=CLUSTER_NAME, operation=operation)


def of_principal(acls: Iterable[Acl], principal: str | None) -> tuple[Acl, ...]:
    """The ACLs with our principal's name where they have none yet; None = it is not known."""
    name = principal or OUR_PRINCIPAL
    return tuple(
        replace(acl, principal=name) if acl.principal == OUR_PRINCIPAL else acl for acl in acls
    )


def missing_acls(what: str, acls: Iterable[Acl]) -> MissingAcls:
    """The error for all of them at once; `what` says what was not done for want of them."""
    found = tuple(sorted(set(acls)))
    named = "; ".join(str(acl) for acl in found)
    return MissingAcls(f"{what}: missing ACL: {named}", found)


def by_resource(acls: Iterable[Acl]) -> tuple[tuple[Acl, ...], ...]:
    """ACLs of one principal and resource together, each once."""
    found: dict[tuple[str, str, str, Pattern], list[Acl]] = {}
    for acl in sorted(set(acls)):
        resource = acl.principal, acl.resource_type, acl.resource_name, acl.pattern
        found.setdefault(resource, []).append(acl)
    return tuple(map(tuple, found.values()))


def grants(acls: Iterable[Acl]) -> tuple[str, ...]:
    """Options of kafka-acls.sh that add these ACLs, one call a principal and resource."""
    return tuple(map(_grant, by_resource(acls)))


def _grant(acls: tuple[Acl, ...]) -> str:
    first = acls[0]
    principal = _NO_NAME if first.principal == OUR_PRINCIPAL else first.principal
    words = ["--add", "--allow-principal", principal]
    for acl in acls:
        words += ["--operation", acl.operation]
    switch = _SWITCHES.get(first.resource_type)
    words += ["--cluster"] if switch is None else [switch, first.resource_name]
    if first.pattern == PREFIXED:
        words += ["--resource-pattern-type", PREFIXED]
    return shlex.join(words)
