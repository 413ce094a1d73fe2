"""The identity object of a store, `rlm-store.json`: the store's id and its owning cluster (H11).

It is created once and only if absent, and never rewritten. Pure: bytes in, value out.
"""

import json
from typing import Any

from kip405.contracts import StoreIdentity
from kip405.errors import Corrupt
from kip405.ids import Uuid

IDENTITY_VERSION = 1
IDENTITY_MAX_BYTES = 64 * 1024


def encode_identity(identity: StoreIdentity) -> bytes:
    """JSON, UTF-8, one line."""
    fields = {
        "v": IDENTITY_VERSION,
        "kind": "store",
        "store_id": str(identity.store_id),
        "cluster_id": identity.cluster_id,
        "created_ms": identity.created_ms,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def decode_identity(data: bytes, place: str) -> StoreIdentity:
    """The value; unknown fields are allowed, Corrupt names `place` and what is wrong with it."""
    try:
        fields: Any = json.loads(data)
        if not isinstance(fields, dict) or fields.get("kind") != "store":
            raise ValueError("it is not an object of kind 'store'")
        if fields.get("v") != IDENTITY_VERSION:
            raise ValueError(f"its version {fields.get('v')!r} is not known")
        store_id, cluster_id, created_ms = (
            fields[name] for name in ("store_id", "cluster_id", "created_ms")
        )
        if not isinstance(cluster_id, str) or not cluster_id or type(created_ms) is not int:
            raise ValueError("cluster_id or created_ms has the wrong type")
        return StoreIdentity(
            store_id=Uuid.parse(store_id), cluster_id=cluster_id, created_ms=created_ms
        )
    except KeyError as error:
        raise Corrupt(f"identity object {place} has no field {error}") from error
    except (ValueError, TypeError) as error:
        raise Corrupt(f"identity object {place} cannot be used: {error}") from error
