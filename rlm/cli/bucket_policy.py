"""`rlm bucket-policy`: the least rights of a service or a reader in a bucket, as a policy."""

import json

import click

from rsm_plugins.s3.rights import PolicyScope, StoreRole, check_principal, policy


@click.command("bucket-policy")
@click.option("--bucket", required=True, help="rsm.config.s3.bucket.name of the store.")
@click.option(
    "--prefix",
    default="",
    help="rsm.config.prefix of the store (default: none, so all objects of the bucket).",
)
@click.option(
    "--role",
    default=StoreRole.SERVICE.value,
    show_default=True,
    type=click.Choice([role.value for role in StoreRole]),
    help="service: beside a broker, which writes and deletes. reader: a service without a broker, "
    "and commands that read a store themselves.",
)
@click.option(
    "--kms-key",
    metavar="ARN",
    help="The key by which the objects are encrypted, with rsm.config.s3.sse.type aws:kms or such "
    "a default of the bucket.",
)
@click.option(
    "--versions",
    is_flag=True,
    help="With the rights on versions of objects that the layout pinterest needs. Its keys must be "
    "below the prefix too (rsm.config.pinterest.prefix), or have a policy of their own.",
)
@click.option(
    "--principal",
    metavar="ARN",
    help="Print the policy of the bucket, which gives this principal the rights, instead of one "
    "that is attached to a role or user: an ARN, the id of an account, or * for everybody.",
)
def bucket_policy(
    *,
    bucket: str,
    prefix: str,
    role: str,
    kms_key: str | None,
    versions: bool,
    principal: str | None,
) -> None:
    """Print the policy with the least rights that a store in S3 needs, as JSON.

    Spark and clients of Kafka need no right in the bucket: they ask services. Which operation needs
    which action is in docs/reference/store-rights.md.
    """
    from rsm_plugins.s3.settings import BUCKET

    scope = PolicyScope(
        bucket=BUCKET.read(bucket, "--bucket"),
        prefix=prefix,
        kms_key=kms_key,
        versions=versions,
    )
    given = None if principal is None else check_principal(principal)
    click.echo(json.dumps(policy(StoreRole(role), scope, given), indent=2))
