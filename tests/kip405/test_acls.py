"""ACLs that are missing: their words, and what kafka-acls.sh is to be given."""

from dataclasses import replace

from kip405.acls import (
    ANONYMOUS,
    cluster_acl,
    grants,
    group_acl,
    missing_acls,
    of_principal,
    topic_acl,
)
from kip405.errors import ErrorKind


def test_h40_all_that_is_missing_is_named_once_as_principal_operation_resource() -> None:
    acls = [topic_acl("Read", "orders"), topic_acl("Delete", "orders"), topic_acl("Read", "orders")]
    error = missing_acls("enable orders", acls)
    assert str(error) == (
        "enable orders: missing ACL: the service's principal, operation Delete, resource "
        "Topic:orders; the service's principal, operation Read, resource Topic:orders"
    )
    assert error.acls == (topic_acl("Delete", "orders"), topic_acl("Read", "orders"))
    assert error.kind is ErrorKind.INVALID


def test_the_name_of_the_principal_is_put_in_where_it_is_known_and_no_other_is_replaced() -> None:
    other = replace(topic_acl("Read", "orders"), principal="User:spark")
    named = of_principal([topic_acl("Read", "orders"), other], "User:tiering")
    assert [one.principal for one in named] == ["User:tiering", "User:spark"]
    assert str(named[0]) == "principal User:tiering, operation Read, resource Topic:orders"
    assert of_principal([topic_acl("Read", "orders")], None) == (topic_acl("Read", "orders"),)
    assert grants([topic_acl("Read", "orders")]) == (
        "--add --allow-principal PRINCIPAL --operation Read --topic orders",
    )


def test_h40_what_is_missing_is_ready_to_be_pasted() -> None:
    acls = [
        topic_acl("Read", "orders"),
        cluster_acl("Describe"),
        topic_acl("Delete", "orders"),
        group_acl("Describe", "it's a group"),
    ]
    assert grants(of_principal(acls, ANONYMOUS)) == (
        "--add --allow-principal User:ANONYMOUS --operation Describe --cluster",
        "--add --allow-principal User:ANONYMOUS --operation Describe --group 'it'\"'\"'s a group'",
        "--add --allow-principal User:ANONYMOUS --operation Delete --operation Read --topic orders",
    )
