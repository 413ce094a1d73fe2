"""What a principal may do with a topic through the API, and who gives it that right. Pure.

Each method of the API needs rights on topics (rlm.api.method_rights). A principals file gives them
by the words of `Grant`. With the broker's ACLs as authority, each right is an operation of Kafka on
the topic, decided as Kafka's StandardAuthorizer decides it (rlm.plans.authorizer).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from kip405.acls import Acl, AclEntry, topic_acl
from rlm.plans.authorizer import lacking

EVERY_TOPIC = "*"
"""Stands for all topics, those that do not exist yet too: what a call about the cluster needs."""


class ApiRight(Enum):
    """One right on a topic."""

    DESCRIBE = "describe"
    READ = "read"
    OPERATE = "operate"
    CONFIGURE = "configure"
    DELETE = "delete"


class Grant(Enum):
    """The words of a principals file."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


Rights: TypeAlias = frozenset[ApiRight]

GIVEN_BY: Mapping[Grant, Rights] = {
    Grant.READ: frozenset({ApiRight.DESCRIBE, ApiRight.READ}),
    Grant.OPERATE: frozenset({ApiRight.DESCRIBE, ApiRight.OPERATE}),
    Grant.ADMIN: frozenset(
        {ApiRight.DESCRIBE, ApiRight.OPERATE, ApiRight.CONFIGURE, ApiRight.DELETE}
    ),
}
"""Whoever may give commands may not read records by that."""

KAFKA_OPERATION: Mapping[ApiRight, str] = {
    ApiRight.DESCRIBE: "Describe",
    ApiRight.READ: "Read",
    ApiRight.OPERATE: "Alter",
    ApiRight.CONFIGURE: "AlterConfigs",
    ApiRight.DELETE: "Delete",
}
"""The operation on the topic that gives a right where the broker's ACLs decide."""

MEANING: Mapping[ApiRight, str] = {
    ApiRight.DESCRIBE: "to see that the topic exists, its offsets, sizes and problems",
    ApiRight.READ: "to read its records",
    ApiRight.OPERATE: "to give commands that lose nothing: copy, verify, freeze",
    ApiRight.CONFIGURE: "to enable and disable it, to change its retention and its trim",
    ApiRight.DELETE: "to end remote data of it at once, and to accept losses",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A right on one topic, or on `EVERY_TOPIC`. `named`: what the caller calls the topic, if that
    is not its name: whoever may not see a topic does not learn its name from its id.
    """

    right: ApiRight
    topic: str
    named: str = ""

    def __str__(self) -> str:
        named = self.named or self.topic
        where = "every topic" if self.topic == EVERY_TOPIC else f"topic {named}"
        return f"{self.right.value} on {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRights:
    """The rights of one principal, by names and by prefixes of topics."""

    names: Mapping[str, Rights] = field(default_factory=dict)
    prefixes: Mapping[str, Rights] = field(default_factory=dict)

    def lacks(self, needs: Iterable[Need]) -> tuple[Need, ...]:
        """Those of the needs that the rights do not give, in their order."""
        return tuple(need for need in needs if need.right not in self._on(need.topic))

    def _on(self, topic: str) -> Rights:
        """No name and no prefix of a topic is `*` or its beginning."""
        found = self.names.get(EVERY_TOPIC, frozenset()) | self.names.get(topic, frozenset())
        for prefix, rights in self.prefixes.items():
            if topic.startswith(prefix):
                found |= rights
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRights:
    """The rights that the cluster's ACLs give one principal that calls from `host`."""

    principal: str
    host: str
    entries: tuple[AclEntry, ...]

    def lacks(self, needs: Iterable[Need]) -> tuple[Need, ...]:
        """As TopicRights."""
        return tuple(
            need
            for need in needs
            if lacking([acl_of(need, self.principal)], self.entries, host=self.host)
        )


def acl_of(need: Need, principal: str) -> Acl:
    """The ACL that would meet the need."""
    return replace(topic_acl(KAFKA_OPERATION[need.right], need.topic), principal=principal)
