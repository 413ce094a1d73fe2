"""The page of rights in stores: the table of S3 with its policies, and owner and modes in HDFS."""

import json
from collections.abc import Iterator, Sequence

from build_tools.reference.markdown import table
from rsm_plugins.hdfs.rights import FILE_MODE, FOLDER_MODE, HDFS_RIGHTS, commands
from rsm_plugins.s3.rights import (
    RIGHTS,
    VERSION_RIGHTS,
    PolicyScope,
    Right,
    StoreRole,
    policy,
)

_HEAD = (
    "# Rights in stores\n\n"
    "What a service beside a broker (`service`) and a service without one (`reader`) may do in a "
    "store. A command that names a store itself, such as `rlm download --config`, `rlm reconcile` "
    "or `rlm ledger rebuild`, needs what a reader needs, and so does a consumer that reads the "
    "store itself. Spark, other clients of Kafka and callers of "
    "the API need no right in any store: they ask services. Made from `rsm_plugins/s3/rights.py` "
    "and `rsm_plugins/hdfs/rights.py`; edit there. The tests run the conformance suite with no "
    "other rights than these, record which request needs which, and try to write with those of a "
    "reader.\n"
)
_S3 = (
    "\n## S3\n\n"
    "`rlm bucket-policy --bucket B --prefix P --role service` prints the policy that goes with the "
    "table; with `--principal ARN` that of the bucket instead of one of a role or user. Outside of "
    "`aws`, as in `aws-cn`, replace the second word of its ARNs.\n\n"
)
_BUCKET = (
    "\nActions of the bucket are not limited to the prefix: S3 says that a key is missing only to "
    "those who may list the bucket, and the request for such a key has no prefix that a condition "
    "could look at. So names below other prefixes can be seen, and no object there can be read. "
    "With a role, the first credentials need `sts:AssumeRole`.\n"
)
_VERSIONS = (
    "\n### The layout `pinterest`\n\n"
    "Its segments are versions of objects. `rlm bucket-policy --versions` prints a policy with "
    "these rights too. Where `rsm.config.pinterest.prefix` is not below `rsm.config.prefix`, print "
    "one for each of the two.\n\n"
)
_HDFS = (
    "\n## HDFS\n\n"
    "Owner, group and mode of the root folder decide. The service is its owner, readers are in its "
    "group. Neither is a superuser, and nobody impersonates anybody: no `hadoop.proxyuser.*` is "
    "needed.\n\n"
)
_HDFS_TAIL = (
    f"\nFolders that the service makes have the mode {FOLDER_MODE:04o}, those of "
    f"`rsm.config.prefix` the mode of the root, and files {FILE_MODE:04o}, whatever "
    "`fs.permissions.umask-mode` says, and all have the group of the root. The root itself keeps "
    "everybody else out. With simple authentication HDFS believes each client's name, so these "
    "rights hold back mistakes and no attacker. With Kerberos the user is that of the principal; "
    "rights with Kerberos were not tried.\n"
)


def generate_docs() -> str:
    """The whole text of docs/reference/store-rights.md."""
    columns = ("operation", "action", "on", "roles", "sent by", "without it")
    policies = "".join(map(_policy, StoreRole))
    columns_of_hdfs = ("folder or file", "role", "rights", "for", "without it")
    return (
        f"{_HEAD}{_S3}{table(columns, _s3_rows(RIGHTS))}{_BUCKET}{policies}"
        f"{_VERSIONS}{table(columns, _s3_rows(VERSION_RIGHTS))}"
        f"{_HDFS}{table(columns_of_hdfs, _hdfs_rows())}"
        f"\n```bash\n{commands('/kafka', user='rlm', group='rlm-readers')}```\n{_HDFS_TAIL}"
    )


def _s3_rows(rights: Sequence[Right]) -> Iterator[Sequence[str]]:
    for row in rights:
        roles = ", ".join(role.value for role in row.roles)
        yield (
            *(row.operation, f"`{row.action}`", row.resource.value, roles),
            *(f"`{row.needed_by}`", row.without),
        )


def _policy(role: StoreRole) -> str:
    scope = PolicyScope(bucket="kafka-archive", prefix="production")
    shown = json.dumps(policy(role, scope), indent=2)
    return f"\n### A policy for `{role.value}`\n\n```json\n{shown}\n```\n"


def _hdfs_rows() -> Iterator[Sequence[str]]:
    for row in HDFS_RIGHTS:
        yield row.path, row.role, f"`{row.rights}`", row.needed_for, row.without
