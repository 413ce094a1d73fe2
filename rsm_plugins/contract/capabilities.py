"""The optional capabilities of a plugin, and the check of those that are required. Pure.

A plugin with another version of the contract, or without a required capability, is refused.
"""

import enum
from collections.abc import Collection

from kip405.errors import Invalid
from rsm_plugins.contract.messages import CONTRACT_VERSION
from rsm_plugins.v1 import identity_pb2 as pb


class Capability(enum.Enum):
    """See proto/rsm_plugins/v1/identity.proto."""

    BYTES = pb.CAPABILITY_BYTES
    SHARED_VOLUME = pb.CAPABILITY_SHARED_VOLUME
    SCRATCH = pb.CAPABILITY_SCRATCH
    INSPECT = pb.CAPABILITY_INSPECT


def check_plugin(info: pb.GetInfoResponse, needed: Collection[Capability], target: str) -> None:
    """Invalid names what is amiss: the versions of the contract, or what the plugin lacks."""
    plugin = f"plugin {target} ({info.name} {info.version})"
    if info.contract_version != CONTRACT_VERSION:
        raise Invalid(
            f"{plugin} speaks version {info.contract_version} of the contract, this side version "
            f"{CONTRACT_VERSION}"
        )
    missing = [one.name for one in needed if one.value not in info.capabilities]
    if missing:
        raise Invalid(f"{plugin} cannot do what is needed here: {', '.join(sorted(missing))}")
