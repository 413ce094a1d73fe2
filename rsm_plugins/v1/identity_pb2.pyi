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
CAPABILITY_UNSPECIFIED: Capability
CAPABILITY_BYTES: Capability
CAPABILITY_SHARED_VOLUME: Capability

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
    __slots__ = ()
    def __init__(self) -> None: ...

class ProbeResponse(_message.Message):
    __slots__ = ("state", "detail")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[ProbeResponse.State]
        STATE_STARTING: _ClassVar[ProbeResponse.State]
        STATE_READY: _ClassVar[ProbeResponse.State]
    STATE_UNSPECIFIED: ProbeResponse.State
    STATE_STARTING: ProbeResponse.State
    STATE_READY: ProbeResponse.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    state: ProbeResponse.State
    detail: str
    def __init__(self, state: _Optional[_Union[ProbeResponse.State, str]] = ..., detail: _Optional[str] = ...) -> None: ...
