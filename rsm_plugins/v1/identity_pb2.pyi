from kip405.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Capability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CAPABILITY_UNSPECIFIED: _ClassVar[Capability]
    CAPABILITY_BYTES: _ClassVar[Capability]
    CAPABILITY_SHARED_VOLUME: _ClassVar[Capability]
    CAPABILITY_SCRATCH: _ClassVar[Capability]
    CAPABILITY_INSPECT: _ClassVar[Capability]
    CAPABILITY_BATCH_DELETE: _ClassVar[Capability]
    CAPABILITY_LAYOUT_BLOCKS: _ClassVar[Capability]
    CAPABILITY_LAYOUT_PINTEREST: _ClassVar[Capability]

class FindingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINDING_KIND_UNSPECIFIED: _ClassVar[FindingKind]
    FINDING_KIND_VERSIONING: _ClassVar[FindingKind]
    FINDING_KIND_OBJECT_LOCK: _ClassVar[FindingKind]
    FINDING_KIND_LIFECYCLE_EXPIRY: _ClassVar[FindingKind]
    FINDING_KIND_MULTIPART_ABORT: _ClassVar[FindingKind]
    FINDING_KIND_FREE_SPACE: _ClassVar[FindingKind]
    FINDING_KIND_REPLICATION: _ClassVar[FindingKind]
CAPABILITY_UNSPECIFIED: Capability
CAPABILITY_BYTES: Capability
CAPABILITY_SHARED_VOLUME: Capability
CAPABILITY_SCRATCH: Capability
CAPABILITY_INSPECT: Capability
CAPABILITY_BATCH_DELETE: Capability
CAPABILITY_LAYOUT_BLOCKS: Capability
CAPABILITY_LAYOUT_PINTEREST: Capability
FINDING_KIND_UNSPECIFIED: FindingKind
FINDING_KIND_VERSIONING: FindingKind
FINDING_KIND_OBJECT_LOCK: FindingKind
FINDING_KIND_LIFECYCLE_EXPIRY: FindingKind
FINDING_KIND_MULTIPART_ABORT: FindingKind
FINDING_KIND_FREE_SPACE: FindingKind
FINDING_KIND_REPLICATION: FindingKind

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ("name", "version", "contract_version", "capabilities", "store_uri", "shared_volume", "instance")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    STORE_URI_FIELD_NUMBER: _ClassVar[int]
    SHARED_VOLUME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    contract_version: int
    capabilities: _containers.RepeatedScalarFieldContainer[Capability]
    store_uri: str
    shared_volume: SharedVolumeProbe
    instance: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., contract_version: _Optional[int] = ..., capabilities: _Optional[_Iterable[_Union[Capability, str]]] = ..., store_uri: _Optional[str] = ..., shared_volume: _Optional[_Union[SharedVolumeProbe, _Mapping]] = ..., instance: _Optional[str] = ...) -> None: ...

class SharedVolumeProbe(_message.Message):
    __slots__ = ("path", "nonce")
    PATH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    path: str
    nonce: str
    def __init__(self, path: _Optional[str] = ..., nonce: _Optional[str] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("inspect",)
    INSPECT_FIELD_NUMBER: _ClassVar[int]
    inspect: bool
    def __init__(self, inspect: _Optional[bool] = ...) -> None: ...

class ProbeResponse(_message.Message):
    __slots__ = ("state", "detail", "problem", "findings")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[ProbeResponse.State]
        STATE_STARTING: _ClassVar[ProbeResponse.State]
        STATE_READY: _ClassVar[ProbeResponse.State]
        STATE_UNHEALTHY: _ClassVar[ProbeResponse.State]
    STATE_UNSPECIFIED: ProbeResponse.State
    STATE_STARTING: ProbeResponse.State
    STATE_READY: ProbeResponse.State
    STATE_UNHEALTHY: ProbeResponse.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    state: ProbeResponse.State
    detail: str
    problem: _errors_pb2.ErrorDetail
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    def __init__(self, state: _Optional[_Union[ProbeResponse.State, str]] = ..., detail: _Optional[str] = ..., problem: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("kind", "state", "days", "applies_to", "value")
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    APPLIES_TO_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    kind: FindingKind
    state: str
    days: int
    applies_to: str
    value: int
    def __init__(self, kind: _Optional[_Union[FindingKind, str]] = ..., state: _Optional[str] = ..., days: _Optional[int] = ..., applies_to: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
