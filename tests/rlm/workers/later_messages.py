"""Messages between worker and core as the next version of either sends them."""

from collections.abc import Callable
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor

from rlm.workers.messages import NEWEST_PROTOCOL
from rlm.workers.v1 import core_pb2 as pb

NEXT_VERSION = "-next"
"""At the end of its version, as it says it in its greeting."""

_PACKAGE = pb.DESCRIPTOR.package
_FIELD, _KIND = 15_000, 15_001
_FIELD_NAME, _KIND_NAME = "only_later", "later"
_Row = descriptor_pb2.FieldDescriptorProto
Rewrite = Callable[[bytes], bytes]


@cache
def _later_pool() -> descriptor_pool.DescriptorPool:
    """Our messages, each with a field more, and each side with a kind of message more."""
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    for message in file.message_type:
        message.field.add(
            name=_FIELD_NAME, number=_FIELD, type=_Row.TYPE_STRING, label=_Row.LABEL_OPTIONAL
        )
        if message.name in ("ToCore", "ToWorker"):
            message.field.add(
                name=_KIND_NAME,
                number=_KIND,
                type=_Row.TYPE_MESSAGE,
                type_name=f".{_PACKAGE}.Cancel",
                label=_Row.LABEL_OPTIONAL,
                oneof_index=0,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _later_class(name: str) -> Any:
    found = _later_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return message_factory.GetMessageClass(found)


def as_later(name: str) -> Rewrite:
    """Messages of this type as the next version sends them: a field more in each part, and a newer
    protocol in its greeting.
    """

    def rewrite(data: bytes) -> bytes:
        message = _later_class(name).FromString(data)
        _fill(message)
        if message.HasField("hello"):
            message.hello.newest_protocol = NEWEST_PROTOCOL + 1
            message.hello.software_version += NEXT_VERSION
        written: bytes = message.SerializeToString()
        return written

    return rewrite


def of_a_later_kind(name: str, call_id: int = 0) -> bytes:
    """A message of this type of which our version does not know what it says."""
    message = _later_class(name)(call_id=call_id)
    getattr(message, _KIND_NAME).cancelled_call_id = 1
    _fill(message)
    written: bytes = message.SerializeToString()
    return written


def _fill(message: Any) -> None:
    for field, value in message.ListFields():
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.type != FieldDescriptor.TYPE_MESSAGE or is_map:
            continue
        for one in value if field.is_repeated else (value,):
            _fill(one)
    setattr(message, _FIELD_NAME, "of the next version")


def unchanged(data: bytes) -> bytes:
    """As our version says it."""
    return data
