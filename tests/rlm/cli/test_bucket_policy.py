"""`rlm bucket-policy` prints the policies of the table as JSON."""

import json

from rsm_plugins.s3.rights import PolicyScope, StoreRole, policy
from tests.rlm.cli.invoking import assert_one_line, rlm

KEY = "arn:aws:kms:eu-central-1:1:key/k"
WHO = "arn:aws:iam::123456789012:role/rlm"


async def test_the_policy_is_printed_for_each_role() -> None:
    for role in StoreRole:
        done = await rlm(
            *("bucket-policy", "--bucket", "b-1", "--prefix", "some/prefix"),
            *("--role", role.value, "--kms-key", KEY),
        )
        scope = PolicyScope(bucket="b-1", prefix="some/prefix", kms_key=KEY)
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        assert json.loads(done.stdout) == policy(role, scope)
    usual = await rlm("bucket-policy", "--bucket", "b-1")
    assert json.loads(usual.stdout) == policy(StoreRole.SERVICE, PolicyScope(bucket="b-1"))


async def test_a_principal_makes_it_the_policy_of_the_bucket() -> None:
    others = ("arn:aws-cn:sts::123456789012:assumed-role/rlm/s", "arn:aws:iam:::user/of-ceph")
    for who in (WHO, *others, "123456789012", "*"):
        done = await rlm("bucket-policy", "--bucket", "b-1", "--role", "reader", "--principal", who)
        scope = PolicyScope(bucket="b-1")
        assert json.loads(done.stdout) == policy(StoreRole.READER, scope, who)


async def test_wrong_use_is_one_line() -> None:
    rows: list[tuple[tuple[str, ...], str]] = [
        ((), "--bucket"),
        (("--bucket", "b/c"), "--bucket: must be the name of a bucket"),
        (("--bucket", "b-1", "--prefix", "/a"), "slash"),
        (("--bucket", "b-1", "--kms-key", "k"), "ARN"),
        (("--bucket", "b-1", "--kms-key", KEY, "--principal", WHO), "the policy of the key"),
    ]
    names = ("me", "", "**", "12345678901", f"{WHO} ", f"{WHO}*", "arn:x", "arn:aws:s3:::b-1", KEY)
    says = "must be an ARN such as arn:aws:iam"
    rows.extend((("--bucket", "b-1", "--principal", name), says) for name in names)
    for arguments, word in rows:
        assert_one_line(await rlm("bucket-policy", *arguments), word, status=2)
