"""H40: what is missing as StandardAuthorizer decides: denials first, names, prefixes, `*`."""

from functools import partial
from typing import Any

import pytest

from kip405.acls import Acl, AclEntry, Pattern
from rlm.plans.authorizer import lacking
from tests.builders.acls import acl_entry

RLM = "User:rlm"


def need(operation: str = "Read", name: str = "orders", pattern: Pattern = "literal") -> Acl:
    return Acl(
        resource_type="Topic",
        resource_name=name,
        operation=operation,
        principal=RLM,
        pattern=pattern,
    )


entry = partial(acl_entry, principal=RLM)


def denied(**changes: Any) -> AclEntry:
    return entry(is_denied=True, **changes)


def is_allowed(acl: Acl, *entries: AclEntry) -> bool:
    return not lacking([acl], entries)


def test_an_acl_counts_for_its_own_principal_resource_and_operation_alone() -> None:
    assert is_allowed(need(), entry())
    assert not is_allowed(need())
    for changes in (
        {"resource_type": "Group"},
        {"resource_name": "order"},
        {"resource_name": "orders2"},
        {"principal": "User:rlm2"},
        {"operation": "Write"},
        {"host": "10.0.0.1"},
    ):
        assert not is_allowed(need(), entry(**changes)), changes
    assert is_allowed(need(), entry(principal="User:*"))
    assert is_allowed(need(), entry(operation="All"))


@pytest.mark.parametrize(
    ("name", "pattern", "allows"),
    [
        ("*", "literal", {"orders", "prefix or", "*"}),
        ("or", "prefixed", {"orders", "prefix or"}),
        ("orders", "prefixed", {"orders"}),
        ("o", "prefixed", {"orders", "prefix or"}),
        ("orders", "literal", {"orders"}),
        ("or", "literal", set()),
        ("x", "prefixed", set()),
    ],
)
def test_names_prefixes_and_the_wildcard(name: str, pattern: Pattern, allows: set[str]) -> None:
    needs = {
        "orders": need(),
        "prefix or": need(name="or", pattern="prefixed"),
        "*": need(name="*"),
    }
    given = entry(resource_name=name, pattern=pattern)
    assert {word for word, acl in needs.items() if is_allowed(acl, given)} == allows


@pytest.mark.parametrize("by", ["Read", "Write", "Delete", "Alter"])
def test_describe_is_implied_where_it_is_allowed_and_not_where_it_is_denied(by: str) -> None:
    assert is_allowed(need("Describe"), entry(operation=by))
    assert is_allowed(need("Describe"), entry(operation="Describe"), denied(operation=by))
    assert not is_allowed(need("DescribeConfigs"), entry(operation=by))


def test_describe_configs_is_implied_by_alter_configs_alone() -> None:
    assert is_allowed(need("DescribeConfigs"), entry(operation="AlterConfigs"))
    assert not is_allowed(need("Describe"), entry(operation="AlterConfigs"))
    assert not is_allowed(need("AlterConfigs"), entry(operation="DescribeConfigs"))


def test_h40_a_denial_wins_in_any_order_and_is_named() -> None:
    for one in (
        denied(),
        denied(resource_name="*"),
        denied(resource_name="ord", pattern="prefixed"),
        denied(principal="User:*", operation="All", host="10.0.0.1"),
    ):
        for entries in ((entry(), one), (one, entry())):
            (found,) = lacking([need()], entries)
            assert found.denied_by == one
            assert "denied" in str(one) and one.principal in str(one)
    assert is_allowed(need(), entry(), denied(resource_name="order"))
    assert is_allowed(need(), entry(), denied(principal="User:other"))


def test_all_of_a_prefix_are_not_allowed_where_one_of_them_is_denied() -> None:
    every = entry(resource_name="*")
    of_prefix = need(name="or", pattern="prefixed")
    for one in (
        denied(),
        denied(resource_name="orders", pattern="prefixed"),
        denied(resource_name="o", pattern="prefixed"),
    ):
        assert not is_allowed(of_prefix, every, one), one
        assert not is_allowed(need(name="*"), every, one), one
    assert is_allowed(of_prefix, every, denied(resource_name="payments"))
    assert not is_allowed(need(name="*"), every, denied(resource_name="payments"))
