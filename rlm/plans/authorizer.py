"""Decides which of the needed ACLs a cluster lacks, as Kafka's StandardAuthorizer decides. Pure.

    1. An ACL that denies wins over all that allow.
    2. An ACL counts for its principal or for `User:*`, on the resource of its literal name, on all
       for the literal name `*`, and on those whose names begin with a prefixed name.
    3. Read, Write, Delete and Alter imply Describe, AlterConfigs implies DescribeConfigs; what is
       denied implies nothing.

Where the host is not given, what an ACL allows to one host only is not taken for allowed, and what
is denied to one is taken for denied: a service may move. Super users are allowed everything, which
no ACL shows. Source: matchingRule of org.apache.kafka.metadata.authorizer.StandardAuthorizerData.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kip405.acls import ALL_OPERATIONS, EVERY_PRINCIPAL, PREFIXED, Acl, AclEntry

_ANY_HOST = "*"
_EVERY = "*"
_IMPLIED_BY = {
    "Describe": frozenset({"Read", "Write", "Delete", "Alter"}),
    "DescribeConfigs": frozenset({"AlterConfigs"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """A needed ACL that has no effect. `denied_by` None: nothing allows it."""

    acl: Acl
    denied_by: AclEntry | None = None


def lacking(
    needed: Iterable[Acl], entries: Iterable[AclEntry], *, host: str | None = None
) -> tuple[Lack, ...]:
    """Those of the needed ACLs that the entries do not give to a client from this address, in the
    order of the ACLs. `host` None: from wherever it comes.
    """
    known = tuple(entries)
    return tuple(found for acl in needed if (found := _lack(acl, known, host)) is not None)


def _lack(acl: Acl, entries: tuple[AclEntry, ...], host: str | None) -> Lack | None:
    mine = list(_of_principal(acl, entries))
    denials = (one for one in mine if one.is_denied and _denies(one, acl, host))
    denied_by = next(denials, None)
    if denied_by is not None:
        return Lack(acl=acl, denied_by=denied_by)
    if any(_allows(one, acl, host) for one in mine if not one.is_denied):
        return None
    return Lack(acl=acl)


def _of_principal(acl: Acl, entries: Iterable[AclEntry]) -> Iterator[AclEntry]:
    for one in entries:
        if one.resource_type == acl.resource_type and one.principal in (
            acl.principal,
            EVERY_PRINCIPAL,
        ):
            yield one


def _allows(entry: AclEntry, acl: Acl, host: str | None) -> bool:
    if entry.host not in (_ANY_HOST, host):
        return False
    enough = _IMPLIED_BY.get(acl.operation, frozenset()) | {acl.operation, ALL_OPERATIONS}
    return entry.operation in enough and _covers(entry, acl)


def _denies(entry: AclEntry, acl: Acl, host: str | None) -> bool:
    if host is not None and entry.host not in (_ANY_HOST, host):
        return False
    return entry.operation in (acl.operation, ALL_OPERATIONS) and _touches(entry, acl)


def _covers(entry: AclEntry, acl: Acl) -> bool:
    """Whether the entry is about every resource that the ACL means."""
    if entry.pattern == PREFIXED:
        return _is_name(acl) and acl.resource_name.startswith(entry.resource_name)
    if entry.resource_name == _EVERY:
        return True
    return acl.pattern != PREFIXED and acl.resource_name == entry.resource_name


def _touches(entry: AclEntry, acl: Acl) -> bool:
    """Whether the entry is about any resource that the ACL means."""
    if _covers(entry, acl) or not _is_name(acl):
        return True
    return acl.pattern == PREFIXED and entry.resource_name.startswith(acl.resource_name)


def _is_name(acl: Acl) -> bool:
    """A name or a prefix, and not every resource of the type."""
    return acl.pattern == PREFIXED or acl.resource_name != _EVERY
