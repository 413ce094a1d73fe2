"""Asks a cluster which ACLs it has for a principal (DescribeAcls v1).

A broker answers only to a principal with Describe on the cluster, and does not name super users.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka_clients.channel_security import ChannelSecurity
from kafka_protocol.apis import DESCRIBE_ACLS
from kip405.acls import ALL_OPERATIONS, EVERY_PRINCIPAL, PREFIXED, AclEntry, cluster_acl
from kip405.addresses import Address
from kip405.errors import Invalid, Unavailable
from rlm.broker.answers import error_of_code
from rlm.broker.connection import BrokerConnection
from rlm.broker.many import OPERATIONS

_CLIENT_ID = "rlm-command"
_TIMEOUT_MS = 10_000
_ANY = 1
_SECURITY_DISABLED = 54
_ALL = 2
_DENY = 2
_PREFIXED = 4
RESOURCE_TYPES = {2: "Topic", 3: "Group", 4: "Cluster", 5: "TransactionalId", 7: "User"}


class NoAuthorizer(Invalid):
    """The cluster has no authorizer: it allows everything to everybody."""


async def acls_of_principal(
    addresses: Sequence[Address],
    security: ChannelSecurity,
    principal: str,
    *,
    client_id: str = _CLIENT_ID,
) -> tuple[AclEntry, ...]:
    """All ACLs of the principal and of `User:*`, from the first broker that answers.

    Unavailable: none does. MissingAcls: we may not ask. NoAuthorizer: there are none.
    """
    failures: list[Unavailable] = []
    for address in addresses:
        connection = BrokerConnection(address, client_id=client_id, security=security)
        try:
            mine = await _described(connection, principal)
            return (*mine, *await _described(connection, EVERY_PRINCIPAL))
        except Unavailable as error:
            failures.append(error)
        finally:
            await connection.close()
    raise Unavailable("; ".join(str(error) for error in failures) or "no broker is named")


async def _described(connection: BrokerConnection, principal: str) -> Iterable[AclEntry]:
    body = {
        "resource_type_filter": _ANY,
        "resource_name_filter": None,
        "pattern_type_filter": _ANY,
        "principal_filter": principal,
        "host_filter": None,
        "operation": _ANY,
        "permission_type": _ANY,
    }
    answer = await connection.call(DESCRIBE_ACLS, 1, body, timeout_ms=_TIMEOUT_MS)
    code, message = answer["error_code"], answer["error_message"]
    if code == _SECURITY_DISABLED:
        raise NoAuthorizer("the cluster has no authorizer: it allows everything to everybody")
    if code:
        what = f"describe the ACLs of {principal}"
        raise error_of_code(code, what, message, needs=cluster_acl("Describe"))
    return tuple(_entries(answer["resources"]))


def _entries(resources: Iterable[Mapping[str, Any]]) -> Iterator[AclEntry]:
    """ACLs on resources and operations that this service has nothing to do with are left out."""
    operations = {**OPERATIONS, _ALL: ALL_OPERATIONS}
    for resource in resources:
        kind = RESOURCE_TYPES.get(resource["resource_type"])
        for acl in resource["acls"]:
            operation = operations.get(acl["operation"])
            if kind is None or operation is None:
                continue
            yield AclEntry(
                resource_type=kind,
                resource_name=resource["resource_name"],
                pattern=PREFIXED if resource["pattern_type"] == _PREFIXED else "literal",
                principal=acl["principal"],
                host=acl["host"],
                operation=operation,
                is_denied=acl["permission_type"] == _DENY,
            )
