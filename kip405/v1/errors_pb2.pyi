from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_KIND_UNSPECIFIED: _ClassVar[ErrorKind]
    ERROR_KIND_NOT_FOUND: _ClassVar[ErrorKind]
    ERROR_KIND_UNAVAILABLE: _ClassVar[ErrorKind]
    ERROR_KIND_BUSY: _ClassVar[ErrorKind]
    ERROR_KIND_INVALID: _ClassVar[ErrorKind]
    ERROR_KIND_CORRUPT: _ClassVar[ErrorKind]
    ERROR_KIND_FENCED: _ClassVar[ErrorKind]
    ERROR_KIND_INTERNAL: _ClassVar[ErrorKind]
ERROR_KIND_UNSPECIFIED: ErrorKind
ERROR_KIND_NOT_FOUND: ErrorKind
ERROR_KIND_UNAVAILABLE: ErrorKind
ERROR_KIND_BUSY: ErrorKind
ERROR_KIND_INVALID: ErrorKind
ERROR_KIND_CORRUPT: ErrorKind
ERROR_KIND_FENCED: ErrorKind
ERROR_KIND_INTERNAL: ErrorKind

class ErrorDetail(_message.Message):
    __slots__ = ("kind", "retriable", "what", "leader_address", "log_start_offset", "high_watermark")
    KIND_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    kind: ErrorKind
    retriable: bool
    what: str
    leader_address: str
    log_start_offset: int
    high_watermark: int
    def __init__(self, kind: _Optional[_Union[ErrorKind, str]] = ..., retriable: _Optional[bool] = ..., what: _Optional[str] = ..., leader_address: _Optional[str] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ...) -> None: ...
