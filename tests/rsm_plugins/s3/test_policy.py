"""The table of rights in a bucket, and the policies that are made of it."""

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from kip405.errors import Invalid
from rsm_plugins.s3.rights import (
    RIGHTS,
    PolicyScope,
    Resource,
    StoreRole,
    actions_of,
    permission_of,
    policy,
)
from tests.project.tree import ROOT

SCOPE = PolicyScope(bucket="b", prefix="some/prefix")
KEY = "arn:aws:kms:eu-central-1:1:key/k"
CHANGES = re.compile(r"s3:(Put|Delete|Abort|Create|Restore|Bypass)|kms:(Encrypt|GenerateDataKey)")


def statements(role: StoreRole, **more: Any) -> dict[str, list[str]]:
    """The actions by resource."""
    scope = PolicyScope(**{"bucket": "b", "prefix": "some/prefix", **more})
    found = policy(role, scope)
    assert found["Version"] == "2012-10-17"
    assert {one["Effect"] for one in found["Statement"]} == {"Allow"}
    return {one["Resource"]: one["Action"] for one in found["Statement"]}


def test_every_row_is_there_once_and_names_code_that_sends_it() -> None:
    keys = [(row.operation, row.action, row.resource) for row in RIGHTS]
    assert len(set(keys)) == len(keys)
    for row in RIGHTS:
        assert row.without.endswith(".")
        assert row.roles
        source = Path(ROOT / row.needed_by).read_text("utf-8")
        method = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", row.operation).lower()
        assert f"client.{method}(" in source or f'"{method}"' in source, row


def test_only_a_service_may_change_anything() -> None:
    changing = {row.action for row in RIGHTS if CHANGES.match(row.action)}
    assert "s3:AbortMultipartUpload" in changing
    for resource in Resource:
        assert not changing & set(actions_of(StoreRole.READER, resource))
    of_service = {one for each in Resource for one in actions_of(StoreRole.SERVICE, each)}
    assert changing <= of_service
    of_reader = {one for each in Resource for one in actions_of(StoreRole.READER, each)}
    assert of_reader == {"s3:ListBucket", "s3:GetObject", "kms:Decrypt"}
    assert of_reader < of_service


def test_no_action_is_a_pattern_and_objects_are_below_the_prefix() -> None:
    for role in StoreRole:
        found = statements(role, kms_key=KEY)
        assert list(found) == ["arn:aws:s3:::b", "arn:aws:s3:::b/some/prefix/*", KEY]
        assert not [one for actions in found.values() for one in actions if "*" in one]
        assert list(statements(role)) == ["arn:aws:s3:::b", "arn:aws:s3:::b/some/prefix/*"]
    assert list(statements(StoreRole.READER, prefix="")) == ["arn:aws:s3:::b", "arn:aws:s3:::b/*"]


def test_an_asterisk_in_a_prefix_is_a_letter() -> None:
    (_, objects) = statements(StoreRole.READER, prefix="a*b")
    assert objects == "arn:aws:s3:::b/a${*}b/*"
    assert not fnmatchcase("arn:aws:s3:::b/aXb/key", objects)


def test_the_policy_of_a_bucket_names_who_it_is_for() -> None:
    who = "arn:aws:iam::123456789012:role/rlm"
    for_all, for_one = policy(StoreRole.SERVICE, SCOPE), policy(StoreRole.SERVICE, SCOPE, who)
    expected = [{**one, "Principal": {"AWS": [who]}} for one in for_all["Statement"]]
    assert for_one["Statement"] == expected
    with pytest.raises(Invalid, match="the policy of the key"):
        policy(StoreRole.SERVICE, PolicyScope(bucket="b", kms_key=KEY), who)


def test_what_cannot_be_a_scope_is_refused() -> None:
    with pytest.raises(Invalid, match="slash"):
        PolicyScope(bucket="b", prefix="a/")
    with pytest.raises(Invalid, match="ARN"):
        PolicyScope(bucket="b", kms_key="alias/mine")


def test_an_error_names_the_permission_of_the_table() -> None:
    assert permission_of("DeleteObjects") == "s3:DeleteObject"
    assert permission_of("PutObject") == "s3:PutObject"  # and nothing of the key
    listing = "and s3:ListBucket, without which a missing key is refused"
    for operation in ("GetObject", "HeadObject"):
        assert permission_of(operation) == f"s3:GetObject, {listing}"
    assert permission_of("GetObjectTagging") is None
