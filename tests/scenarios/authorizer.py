"""A cluster with StandardAuthorizer: the services are User:ANONYMOUS on DIRECT and have what they
were given, tests are a super user by SASL through the proxies.

Brokers start with everything allowed where nothing is said of a resource, so that a sandbox comes
up as ever; `close_cluster` then says something of every resource.
"""

import asyncio
import functools
import json
import urllib.request
from collections.abc import Iterable
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kafka_clients.channel_security import plaintext
from kip405.acls import ANONYMOUS, CLUSTER_NAME, Acl, cluster_acl, of_principal, topic_acl
from kip405.addresses import Address
from rlm.broker.many import AllowedOperations
from rlm.plans.rights import (
    EACH_TOPIC,
    GROUPS_TOPIC,
    USUAL_CASES,
    Role,
    Topics,
    When,
    least_acls,
    rights_of,
)
from rlm_sandbox.spec import Override
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.scenarios.cluster import Cluster
from tests.service_log import events_of

_PASSWORD = "of-tests-only"
_LIMIT_S = 120
SUPER_USER: dict[str, Any] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": _PASSWORD,
}
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OVERRIDES = tuple(
    Override.parse(text)
    for text in (
        "broker.authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "broker.super.users=User:admin",
        "broker.allow.everyone.if.no.acl.found=true",
        "broker.listener.security.protocol.map="
        "DIRECT:PLAINTEXT,TIERED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "broker.listener.name.tiered.sasl.enabled.mechanisms=PLAIN",
        f'broker.listener.name.tiered.plain.sasl.jaas.config={_JAAS} user_admin="{_PASSWORD}";',
    )
)

_OF_SERVICE = least_acls(
    Role.SERVICE, ANONYMOUS, Topics(names=("orders",)), USUAL_CASES - {When.FIRST_START}
)
OF_OUR_TOPICS = tuple(
    acl for acl in _OF_SERVICE if acl.resource_name in (LEDGER_TOPIC, SETTINGS_TOPIC)
)
OF_THE_CLUSTER = tuple(
    acl for acl in _OF_SERVICE if acl.resource_name in (CLUSTER_NAME, GROUPS_TOPIC)
)
OF_THE_BROKERS = of_principal([cluster_acl("ClusterAction")], ANONYMOUS)
"""Brokers are ANONYMOUS among themselves here, and services cannot be distinguished from them."""


def of_tier(topic: str) -> tuple[Acl, ...]:
    """The ACLs that the services need for one topic."""
    rights = [one for one in rights_of(Role.SERVICE) if one.resource_name == EACH_TOPIC]
    return of_principal([topic_acl(one.operation, topic) for one in rights], ANONYMOUS)


class SecuredCluster(Cluster):
    """Its clients are the super user, through the proxies."""

    def _admin_config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, **SUPER_USER}

    def close_cluster(self) -> None:
        """From now on ANONYMOUS has the rights that brokers need, and those that are granted."""
        self.grant(*OF_THE_BROKERS, *OF_OUR_TOPICS, *OF_THE_CLUSTER)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP):
            self._create([_binding(kind, "*", AclOperation.ALL, principal="User:admin")])

    def grant(self, *acls: Acl) -> None:
        """Returns when every broker knows."""
        self._create(binding_of(acl) for acl in acls)
        self._wait_until_known(acls, allowed=True)

    def take_away(self, *acls: Acl) -> None:
        """Until it is granted again; returns when every broker knows."""
        filters = [filter_of(acl) for acl in acls]
        for deleted in self.admin.delete_acls(filters).values():
            assert list(deleted.result(_LIMIT_S)), "there was no such ACL"
        self._wait_until_known(acls, allowed=False)

    @property
    def nodes(self) -> list[int]:
        return sorted(self.sandbox.state.ports)

    def problems(self, node_id: int = 1) -> list[str]:
        """Texts of the problems that /healthz of a service has."""
        return [str(one["text"]) for one in self._healthz(node_id)["problems"]]

    def is_ready(self, node_id: int = 1) -> bool:
        return bool(self._healthz(node_id)["ready"])

    def is_alarmed(self, node_id: int = 1) -> bool:
        return bool(self._healthz(node_id)["health"] == "alarm")

    def problem_count(self, node_id: int = 1) -> int:
        """`rlm_problems` of a service's metrics, of all kinds."""
        text = self._get(node_id, "metrics")
        lines = [one for one in text.splitlines() if one.startswith("rlm_problems{")]
        return sum(int(float(line.split()[-1])) for line in lines)

    def log_lines(self, event: str, node_id: int = 1) -> list[dict[str, str]]:
        """Lines of one event that a service logged."""
        found = events_of(self.sandbox.layout.log(f"rlm:{node_id}"))
        return [line for line in found if line["event"] == event]

    def _healthz(self, node_id: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._get(node_id, "healthz"))
        return found

    def _get(self, node_id: int, path: str) -> str:
        port = self.sandbox.state.ports[node_id].http
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=_LIMIT_S) as answer:
            return str(answer.read().decode())

    def wait_all_within(self, topic: str, *, beyond: int) -> None:
        """Wait until the broker's own log starts beyond an offset; proxies answer for the whole."""
        self.wait_for(
            lambda: self.status(topic)["local_log_start_offset"] > beyond, f"trim of {topic}"
        )

    def _wait_until_known(self, acls: Iterable[Acl], *, allowed: bool) -> None:
        for acl in acls:
            if acl.operation != "ClusterAction":
                self.wait_for(
                    functools.partial(self._is_known, acl, allowed), f"{acl} at every broker"
                )

    def _is_known(self, acl: Acl, allowed: bool) -> bool:
        return (not allowed) not in {self._is_allowed(acl, node_id) for node_id in self.nodes}

    def _is_allowed(self, acl: Acl, node_id: int) -> bool | None:
        """None where the topic does not exist."""
        address = Address(host="127.0.0.1", port=self.sandbox.state.ports[node_id].direct)

        async def ask() -> frozenset[str] | None:
            asked = AllowedOperations(address, client_id="tests", security=plaintext())
            try:
                if acl.resource_type == "Cluster":
                    return await asked.on_cluster()
                return (await asked.on_topics([acl.resource_name])).get(acl.resource_name)
            finally:
                await asked.close()

        operations = asyncio.run(ask())
        return None if operations is None else acl.operation in operations

    def _create(self, bindings: Iterable[AclBinding]) -> None:
        for created in self.admin.create_acls(list(bindings)).values():
            created.result(_LIMIT_S)


def binding_of(acl: Acl) -> AclBinding:
    """The ACL as confluent-kafka creates it."""
    kind, name, operation = _resource(acl)
    return _binding(kind, name, operation, principal=acl.principal)


def _binding(
    kind: ResourceType, name: str, operation: AclOperation, *, principal: str
) -> AclBinding:
    return AclBinding(
        kind, name, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW
    )


def filter_of(acl: Acl) -> AclBindingFilter:
    """The filter by which confluent-kafka deletes this ACL and no other."""
    kind, name, operation = _resource(acl)
    return AclBindingFilter(
        kind,
        name,
        ResourcePatternType.LITERAL,
        acl.principal,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def _resource(acl: Acl) -> tuple[ResourceType, str, AclOperation]:
    words = {
        "ClusterAction": AclOperation.CLUSTER_ACTION,
        "AlterConfigs": AclOperation.ALTER_CONFIGS,
        "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    }
    operation = words.get(acl.operation) or AclOperation[acl.operation.upper()]
    is_cluster = acl.resource_type == "Cluster"
    kind = ResourceType.BROKER if is_cluster else ResourceType[acl.resource_type.upper()]
    return kind, CLUSTER_NAME if is_cluster else acl.resource_name, operation
