"""The table of rights: what each role gets, in which case, and by which pattern."""

from pathlib import Path

import pytest

from kip405.acls import OUR_PRINCIPAL, PREFIXED, Acl, cluster_acl, grants, group_acl, topic_acl
from kip405.errors import Invalid
from rlm.plans.rights import (
    COPY_CASES,
    EVERY_CASE,
    RIGHTS,
    USUAL_CASES,
    Role,
    Topics,
    When,
    least_acls,
    rights_of,
)
from rlm.restore.transactions import PREFIX
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

ROOT = Path(__file__).parents[3]

ORDERS = Topics(names=("orders",))


def operations(role: Role, topic: str, cases: frozenset[When] = USUAL_CASES) -> set[str]:
    found = least_acls(role, OUR_PRINCIPAL, ORDERS, cases)
    return {acl.operation for acl in found if acl.resource_name == topic}


def test_every_row_is_there_once_and_names_code_that_exists() -> None:
    keys = [(row.role, row.resource_type, row.resource_name, row.operation) for row in RIGHTS]
    assert len(set(keys)) == len(keys)
    for row in RIGHTS:
        assert row.without.endswith(".")
        for path in row.needed_by.split(", "):
            assert (ROOT / path).is_file(), path


def test_h40_a_service_gets_what_the_mode_of_its_topics_needs() -> None:
    assert operations(Role.SERVICE, "orders", COPY_CASES) == {"Describe", "DescribeConfigs"}
    external = USUAL_CASES - {When.TAKEOVER}
    of_tier = {"Describe", "DescribeConfigs", "Read", "Delete"}
    assert operations(Role.SERVICE, "orders", external) == of_tier
    assert operations(Role.SERVICE, "orders") == of_tier | {"AlterConfigs"}
    copied = least_acls(Role.SERVICE, OUR_PRINCIPAL, ORDERS, COPY_CASES)
    assert cluster_acl("DescribeConfigs") in copied
    assert not {cluster_acl("Describe"), group_acl("Describe", "*")} & set(copied)
    assert {cluster_acl("Describe"), group_acl("Describe", "*")} <= set(
        least_acls(Role.SERVICE, OUR_PRINCIPAL, ORDERS)
    )


def test_only_who_writes_may_write_and_nobody_may_write_a_topic_of_clients() -> None:
    for role in set(Role) - {Role.RESTORE}:
        granted = operations(role, "orders", EVERY_CASE)
        assert not granted & {"Write", "Create", "Alter", "All"}, role
    assert "Write" not in operations(Role.READER, LEDGER_TOPIC, EVERY_CASE)
    assert "Write" in operations(Role.READER, SETTINGS_TOPIC)
    of_spark = least_acls(Role.SPARK, OUR_PRINCIPAL, ORDERS, EVERY_CASE)
    assert of_spark == (topic_acl("Describe", "orders"), topic_acl("Read", "orders"))


def test_topics_are_by_name_by_prefix_or_all_and_never_two_of_them() -> None:
    by_prefix = least_acls(Role.SPARK, "User:s", Topics(prefix="or"))
    read = Acl(
        resource_type="Topic",
        resource_name="or",
        operation="Read",
        principal="User:s",
        pattern="prefixed",
    )
    assert read in by_prefix
    assert grants(by_prefix) == (
        "--add --allow-principal User:s --operation Describe --operation Read --topic or "
        "--resource-pattern-type prefixed",
    )
    assert grants(least_acls(Role.SPARK, "User:s", Topics())) == (
        "--add --allow-principal User:s --operation Describe --operation Read --topic '*'",
    )
    with pytest.raises(Invalid, match="give one of them"):
        Topics(names=("a",), prefix="b")


def test_a_prefix_never_reaches_the_topics_of_the_service() -> None:
    granted = least_acls(Role.SERVICE, "User:s", Topics(prefix="or"), EVERY_CASE)
    prefixed = {acl.resource_name for acl in granted if acl.pattern == "prefixed"}
    assert prefixed == {"or"}
    assert "Write" not in {acl.operation for acl in granted if acl.pattern == "prefixed"}


def test_who_restores_may_write_its_topic_and_what_begins_as_its_groups_do() -> None:
    found = least_acls(Role.RESTORE, "User:r", ORDERS)
    of_topic = {acl.operation for acl in found if acl.resource_type == "Topic"}
    assert of_topic == {"Create", "Describe", "DescribeConfigs", "Read", "Write"}
    assert {acl.resource_name for acl in found if acl.resource_type == "Topic"} == {"orders"}
    others = [acl for acl in found if acl.resource_type != "Topic"]
    assert {acl.resource_type for acl in others} == {"Group", "TransactionalId"}
    assert {(acl.resource_name, acl.pattern) for acl in others} == {(PREFIX, PREFIXED)}
    there_already = least_acls(Role.RESTORE, "User:r", ORDERS, {When.ALWAYS})
    assert {acl.operation for acl in set(found) - set(there_already)} == {"Create"}


def test_groups_are_the_only_resource_that_is_always_for_all() -> None:
    every = [row for row in RIGHTS if row.resource_name == "*"]
    assert {row.resource_type for row in every} == {"Group"}
    assert {row.operation for row in every} == {"Describe", "DescribeConfigs"}
    assert not [row for row in rights_of(Role.READER, USUAL_CASES) if row.resource_type != "Topic"]


def test_tokens_are_for_named_clients_where_certificates_are_an_identity() -> None:
    clients = Topics(names=("orders",), clients=("User:alice", "User:team-*", "User:*"))
    cases = USUAL_CASES | {When.CERTIFICATES}
    found = least_acls(Role.SERVICE, "User:rlm", clients, cases)
    tokens = {
        (acl.resource_name, acl.pattern, acl.operation)
        for acl in found
        if acl.resource_type == "User"
    }
    assert tokens == {
        ("User:alice", "literal", "CreateTokens"),
        ("User:team-", "prefixed", "CreateTokens"),
        ("User:", "prefixed", "CreateTokens"),
    }
    usual = least_acls(Role.SERVICE, "User:rlm", clients)
    assert not [acl for acl in usual if acl.resource_type == "User"]
    nobody = least_acls(Role.SERVICE, "User:rlm", ORDERS, cases)
    assert not [acl for acl in nobody if acl.resource_type == "User"]


def test_who_asks_for_the_rights_of_callers_may_describe_the_cluster() -> None:
    asks = COPY_CASES | {When.API, When.TIER_OR_API}
    for role in (Role.SERVICE, Role.READER):
        assert cluster_acl("Describe") in least_acls(role, OUR_PRINCIPAL, ORDERS, asks)
        assert cluster_acl("Describe") not in least_acls(role, OUR_PRINCIPAL, ORDERS, COPY_CASES)
