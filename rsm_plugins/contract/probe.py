"""The answers of a plugin about itself: its capabilities, and the health and findings of its store.

A plugin with another version of the contract, or without a required capability, is refused.
"""

import enum
from collections.abc import Collection
from dataclasses import dataclass

from kip405.contracts import FindingKind, StoreFinding
from kip405.errors import Invalid, RemoteStorageError
from kip405.segments import Layout
from rsm_plugins.contract.messages import CONTRACT_VERSION
from rsm_plugins.contract.status import error_of_detail
from rsm_plugins.v1 import identity_pb2 as pb


class ProbeState(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """`problem` is set if the store is unhealthy; `findings` if they were requested."""

    state: ProbeState
    detail: str
    problem: RemoteStorageError | None = None
    findings: tuple[StoreFinding, ...] = ()


_STATES: dict[pb.ProbeResponse.State, ProbeState] = {
    pb.ProbeResponse.STATE_STARTING: ProbeState.STARTING,
    pb.ProbeResponse.STATE_READY: ProbeState.READY,
    pb.ProbeResponse.STATE_UNHEALTHY: ProbeState.UNHEALTHY,
}
_KINDS: dict[FindingKind, pb.FindingKind] = {
    FindingKind.VERSIONING: pb.FINDING_KIND_VERSIONING,
    FindingKind.OBJECT_LOCK: pb.FINDING_KIND_OBJECT_LOCK,
    FindingKind.LIFECYCLE_EXPIRY: pb.FINDING_KIND_LIFECYCLE_EXPIRY,
    FindingKind.MULTIPART_ABORT: pb.FINDING_KIND_MULTIPART_ABORT,
    FindingKind.FREE_SPACE: pb.FINDING_KIND_FREE_SPACE,
    FindingKind.REPLICATION: pb.FINDING_KIND_REPLICATION,
}
_BY_NUMBER: dict[int, FindingKind] = {number: kind for kind, number in _KINDS.items()}


def finding_message(finding: StoreFinding) -> pb.Finding:
    return pb.Finding(
        kind=_KINDS[finding.kind],
        state=finding.state,
        days=finding.days,
        applies_to=finding.applies_to,
        value=finding.value,
    )


def probe_value(message: pb.ProbeResponse) -> ProbeAnswer:
    """An unknown state is not healthy; findings of unknown kinds are left out."""
    return ProbeAnswer(
        state=_STATES.get(message.state, ProbeState.UNHEALTHY),
        detail=message.detail,
        problem=error_of_detail(message.problem) if message.HasField("problem") else None,
        findings=tuple(
            _finding_value(finding) for finding in message.findings if finding.kind in _BY_NUMBER
        ),
    )


def _finding_value(message: pb.Finding) -> StoreFinding:
    return StoreFinding(
        kind=_BY_NUMBER[message.kind],
        state=message.state,
        days=message.days if message.HasField("days") else None,
        applies_to=message.applies_to,
        value=message.value if message.HasField("value") else None,
    )


class Capability(enum.Enum):
    """See proto/rsm_plugins/v1/identity.proto."""

    BYTES = pb.CAPABILITY_BYTES
    SHARED_VOLUME = pb.CAPABILITY_SHARED_VOLUME
    SCRATCH = pb.CAPABILITY_SCRATCH
    INSPECT = pb.CAPABILITY_INSPECT
    BATCH_DELETE = pb.CAPABILITY_BATCH_DELETE
    LAYOUT_BLOCKS = pb.CAPABILITY_LAYOUT_BLOCKS
    LAYOUT_PINTEREST = pb.CAPABILITY_LAYOUT_PINTEREST


LAYOUT_CAPABILITIES = {
    Layout.BLOCKS: Capability.LAYOUT_BLOCKS,
    Layout.PINTEREST: Capability.LAYOUT_PINTEREST,
}
"""Every plugin has the layout `kafka`."""


def layouts_of(info: pb.GetInfoResponse) -> frozenset[Layout]:
    """The layouts that the plugin copies and reads."""
    named = (
        one for one, needed in LAYOUT_CAPABILITIES.items() if needed.value in info.capabilities
    )
    return frozenset({Layout.KAFKA, *named})


def check_plugin(info: pb.GetInfoResponse, needed: Collection[Capability], target: str) -> None:
    """Invalid names the versions of the contract, or the capabilities that the plugin lacks."""
    plugin = f"plugin {target} ({info.name} {info.version})"
    if info.contract_version != CONTRACT_VERSION:
        raise Invalid(
            f"{plugin} speaks version {info.contract_version} of the contract, this side version "
            f"{CONTRACT_VERSION}"
        )
    missing = [one.name for one in needed if one.value not in info.capabilities]
    if missing:
        raise Invalid(f"{plugin} cannot do what is needed here: {', '.join(sorted(missing))}")
