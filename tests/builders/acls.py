"""What brokers answer about one ACL."""

from dataclasses import replace
from typing import Any

from kip405.acls import AclEntry

_ALLOWED = AclEntry(
    resource_type="Topic",
    resource_name="orders",
    pattern="literal",
    principal="User:etl",
    host="*",
    operation="Read",
    is_denied=False,
)


def acl_entry(**changes: Any) -> AclEntry:
    """User:etl may read `orders` from everywhere, with these changes."""
    return replace(_ALLOWED, **changes)
