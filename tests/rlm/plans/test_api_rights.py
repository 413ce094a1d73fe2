"""Rights at the API: words of a principals file, names, prefixes, `*`, and the brokers' ACLs."""

import pytest

from kip405.acls import AclEntry
from rlm.plans.api_rights import (
    EVERY_TOPIC,
    GIVEN_BY,
    KAFKA_OPERATION,
    MEANING,
    AclRights,
    ApiRight,
    Grant,
    Need,
    TopicRights,
)
from tests.builders.acls import acl_entry as entry


def may(rights: TopicRights | AclRights, right: ApiRight, topic: str) -> bool:
    return not rights.lacks([Need(right=right, topic=topic)])


@pytest.mark.parametrize(
    ("grant", "gives"),
    [
        (Grant.READ, "describe read"),
        (Grant.OPERATE, "describe operate"),
        (Grant.ADMIN, "describe operate configure delete"),
    ],
)
def test_what_each_word_gives(grant: Grant, gives: str) -> None:
    assert {right.value for right in GIVEN_BY[grant]} == set(gives.split())


def test_every_right_has_its_operation_and_its_meaning() -> None:
    assert set(KAFKA_OPERATION) == set(MEANING) == set(ApiRight)
    assert len(set(KAFKA_OPERATION.values())) == len(ApiRight)


def test_names_prefixes_and_the_wildcard() -> None:
    read, operate, admin = (GIVEN_BY[one] for one in Grant)
    rights = TopicRights(names={"orders": read, "*": operate}, prefixes={"team-": admin})
    asked = {"orders", "orders2", "team-a", "team-", "team", EVERY_TOPIC}
    for right, topics in (
        (ApiRight.READ, {"orders"}),
        (ApiRight.OPERATE, asked),
        (ApiRight.DELETE, {"team-a", "team-"}),
    ):
        assert {topic for topic in asked if may(rights, right, topic)} == topics
    assert not may(TopicRights(names={"orders": admin}), ApiRight.DESCRIBE, EVERY_TOPIC)
    assert not may(TopicRights(prefixes={"o": admin}), ApiRight.DESCRIBE, EVERY_TOPIC)
    assert not may(TopicRights(), ApiRight.DESCRIBE, "orders")


def test_what_is_lacking_is_said_in_order() -> None:
    needs = [
        Need(right=ApiRight.READ, topic="a"),
        Need(right=ApiRight.READ, topic="b"),
        Need(right=ApiRight.DELETE, topic="a"),
    ]
    rights = TopicRights(names={"a": GIVEN_BY[Grant.READ]})
    assert [str(one) for one in rights.lacks(needs)] == ["read on topic b", "delete on topic a"]


def acl_rights(*entries: AclEntry) -> AclRights:
    return AclRights(principal="User:etl", host="10.0.0.1", entries=entries)


def test_acls_give_what_the_brokers_would() -> None:
    rights = acl_rights(entry())
    assert may(rights, ApiRight.READ, "orders") and may(rights, ApiRight.DESCRIBE, "orders")
    assert not may(rights, ApiRight.OPERATE, "orders")
    assert not may(rights, ApiRight.READ, EVERY_TOPIC)
    everything = acl_rights(entry(resource_name="*", operation="All"))
    assert all(may(everything, right, EVERY_TOPIC) for right in ApiRight)
    of_prefix = acl_rights(entry(resource_name="or", pattern="prefixed", principal="User:*"))
    assert may(of_prefix, ApiRight.READ, "orders") and not may(of_prefix, ApiRight.READ, "o")


def test_a_denial_wins() -> None:
    for denied in (
        entry(is_denied=True),
        entry(is_denied=True, resource_name="*", operation="All"),
        entry(is_denied=True, resource_name="o", pattern="prefixed"),
        entry(is_denied=True, principal="User:*", host="10.0.0.1"),
    ):
        assert not may(acl_rights(entry(), denied), ApiRight.READ, "orders"), denied
    allowed = acl_rights(entry(resource_name="*"), entry(is_denied=True))
    assert may(allowed, ApiRight.READ, "payments")
    assert not may(allowed, ApiRight.READ, EVERY_TOPIC)


def test_the_host_counts_as_at_the_brokers() -> None:
    assert may(acl_rights(entry(host="10.0.0.1")), ApiRight.READ, "orders")
    assert not may(acl_rights(entry(host="10.0.0.2")), ApiRight.READ, "orders")
    elsewhere = acl_rights(entry(), entry(is_denied=True, host="10.0.0.2"))
    assert may(elsewhere, ApiRight.READ, "orders")
