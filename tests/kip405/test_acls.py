"""ACLs that are missing: their words, and what kafka-acls.sh is to be given."""

from kip405.acls import cluster_acl, grants, group_acl, missing_acls, topic_acl
from kip405.errors import ErrorKind


def test_h40_all_that_is_missing_is_named_once_as_principal_operation_resource() -> None:
    acls = [topic_acl("Read", "orders"), topic_acl("Delete", "orders"), topic_acl("Read", "orders")]
    error = missing_acls("enable orders", acls)
    assert str(error) == (
        "enable orders: missing ACL: principal User:ANONYMOUS, operation Delete, resource "
        "Topic:orders; principal User:ANONYMOUS, operation Read, resource Topic:orders"
    )
    assert error.acls == (topic_acl("Delete", "orders"), topic_acl("Read", "orders"))
    assert error.kind is ErrorKind.INVALID


def test_h40_what_is_missing_is_ready_to_be_pasted() -> None:
    acls = [
        topic_acl("Read", "orders"),
        cluster_acl("Describe"),
        topic_acl("Delete", "orders"),
        group_acl("Describe", "it's a group"),
    ]
    assert grants(acls) == (
        "--add --allow-principal User:ANONYMOUS --operation Describe --cluster",
        "--add --allow-principal User:ANONYMOUS --operation Describe --group 'it'\"'\"'s a group'",
        "--add --allow-principal User:ANONYMOUS --operation Delete --operation Read --topic orders",
    )
