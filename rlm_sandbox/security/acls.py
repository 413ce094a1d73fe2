"""The ACLs of a secured sandbox: what each principal may do, and how the cluster learns it.

    admin, broker   super users
    rlm             what a service beside a broker needs, for any topic: rlm/plans/rights.py; and to
                    make tokens of reader and denied, as for proxy.tls.client.identity
    reader          Read and Describe of every topic, Read of every group
    denied          nothing

Everything else is denied: StandardAuthorizer allows what an ACL allows, and nothing else.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafka_protocol.apis import CREATE_ACLS, DESCRIBE_ACLS
from kafka_protocol.primitives import WireError
from kafka_protocol.schema import Value
from rlm.plans.rights import USUAL_CASES, Role, Topics, When, least_acls
from rlm_sandbox.security.broker_calls import broker_calls
from rlm_sandbox.security.clients import ClientIdentity
from rlm_sandbox.security.principals import DENIED, READER, SERVICE
from rlm_sandbox.spec import SandboxError

_TIMEOUT_S = 10.0
_ANY = 1
_ALLOW = 3
_RESOURCES = {"Topic": 2, "Group": 3, "Cluster": 4, "TransactionalId": 5, "User": 7}
_OPERATIONS = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "ClusterAction": 9,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
    "CreateTokens": 13,
}


class Grant(NamedTuple):
    """One operation that a principal may do on a resource, from every host."""

    principal: str
    resource_type: str
    resource_name: str
    operation: str


def _grants(principal: str, kind: str, name: str, *operations: str) -> tuple[Grant, ...]:
    return tuple(Grant(f"User:{principal}", kind, name, one) for one in operations)


def _least_grants(principal: str, role: Role) -> tuple[Grant, ...]:
    """What the product says that this role needs, and no more."""
    clients = tuple(f"User:{name}" for name in (READER, DENIED))
    cases = USUAL_CASES | {When.CERTIFICATES}
    return tuple(
        Grant(acl.principal, acl.resource_type, acl.resource_name, acl.operation)
        for acl in least_acls(role, f"User:{principal}", Topics(clients=clients), cases)
    )


FIXTURE: tuple[Grant, ...] = (
    *_least_grants(SERVICE, Role.SERVICE),
    *_grants(READER, "Topic", "*", "Read", "Describe"),
    *_grants(READER, "Group", "*", "Read"),
)


def create_acls(port: int, identity: ClientIdentity, grants: Sequence[Grant] = FIXTURE) -> None:
    """Have the broker on a loopback port create them; raises SandboxError where it refuses."""
    creations = [_creation(one) for one in grants]
    try:
        with broker_calls(port, identity, timeout_s=_TIMEOUT_S) as calls:
            answer = calls.call(CREATE_ACLS, 1, {"creations": creations})
    except (OSError, EOFError, WireError) as error:
        raise SandboxError(f"the ACLs could not be created: {error}") from error
    for grant, result in zip(grants, answer["results"], strict=True):
        if result["error_code"]:
            raise SandboxError(
                f"{grant}: the broker refused this ACL: "
                f"{result['error_message'] or result['error_code']}"
            )


def knows_acls(port: int, identity: ClientIdentity, grants: Iterable[Grant] = FIXTURE) -> bool:
    """Whether the broker on a loopback port has them all; a new ACL reaches each by the log."""
    everything = {
        "resource_type_filter": _ANY,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
        "pattern_type_filter": _ANY,
        "operation": _ANY,
        "permission_type": _ANY,
    }
    try:
        with broker_calls(port, identity, timeout_s=_TIMEOUT_S) as calls:
            answer = calls.call(DESCRIBE_ACLS, 1, everything)
    except (OSError, EOFError, WireError):
        return False
    known = {_key(resource, one) for resource in answer["resources"] for one in resource["acls"]}
    wanted = [_creation(grant) for grant in grants]
    return all(_key(one, one) in known for one in wanted)


def _creation(grant: Grant) -> dict[str, Any]:
    return {
        "resource_type": _RESOURCES[grant.resource_type],
        "resource_name": grant.resource_name,
        "principal": grant.principal,
        "host": "*",
        "operation": _OPERATIONS[grant.operation],
        "permission_type": _ALLOW,
    }


def _key(resource: Value, acl: Value) -> tuple[Any, ...]:
    return (
        resource["resource_type"],
        resource["resource_name"],
        acl["principal"],
        acl["host"],
        acl["operation"],
        acl["permission_type"],
    )
