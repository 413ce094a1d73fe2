"""The protos with their comments -> docs/reference/api.md and docs/reference/plugin-api.md."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

from build_tools.locks import ROOT
from build_tools.reference.markdown import cell, prose, table

_SOURCES = ROOT / "proto"
_ERRORS = "kip405/v1"
_SERVICE_HEAD = """\
# gRPC API

Every service and reader serves this API at `grpc.listen`, with health and reflection beside it.
Ranges are half-open unless a comment says otherwise. Made from `proto/rlm/v1/`
and `proto/kip405/v1/`; edit there.
"""
_PLUGIN_HEAD = """\
# Plugin contract

A plugin serves these two services; [writing a plugin](../writing-a-plugin.md) is the guide to them.
Made from `proto/rsm_plugins/v1/` and `proto/kip405/v1/`; edit there.
"""
# Numbers of the fields of descriptor.proto that lead to a declaration and its comment.
_MESSAGE, _ENUM, _SERVICE, _SYNTAX = 4, 5, 6, 12
_FIELD, _NESTED, _NESTED_ENUM, _METHOD, _VALUE = 2, 3, 4, 2, 2

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A proto file, and the comments in it by the path of what they describe."""

    file: FileDescriptorProto
    comments: Mapping[Numbers, str]

    def comment(self, *path: int) -> str:
        return self.comments.get(path, "")


def generate_service_docs() -> str:
    """The API of the service, whole."""
    return _SERVICE_HEAD + _package("rlm/v1")


def generate_plugin_docs() -> str:
    """The contract of plugins, whole."""
    return _PLUGIN_HEAD + _package("rsm_plugins/v1")


def _package(folder: str) -> str:
    """The files of a folder, with the errors that all calls have."""
    sources = _read(_ERRORS, folder)
    calls = "".join(section for source in sources for section in _calls(source))
    types = "".join(section for source in sources for section in _types(source))
    return f"{calls}\n## Messages\n{types}"


def _calls(source: _Source) -> Iterator[str]:
    """Services with what the head of their file says; of a file without any, that head alone."""
    head = source.comment(_SYNTAX)
    if head and not source.file.service:
        yield _section(f"## {Path(source.file.name).stem.capitalize()}", prose(head))
    for number, service in enumerate(source.file.service):
        text = source.comment(_SERVICE, number)
        yield _section(f"## {service.name}", prose(head), prose(text))
        for at, method in enumerate(service.method):
            comment = source.comment(_SERVICE, number, _METHOD, at)
            yield _section(f"### {service.name}.{method.name}", _signature(method), prose(comment))


def _section(*blocks: str) -> str:
    """A heading and what follows it, with empty lines between them."""
    return "".join(f"\n{part.rstrip()}\n" for part in blocks if part)


def _read(*folders: str) -> list[_Source]:
    names = sorted(
        path.relative_to(_SOURCES).as_posix()
        for folder in folders
        for path in (_SOURCES / folder).iterdir()
    )
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "descriptors"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{_SOURCES}", *names]
        command += [f"--descriptor_set_out={out}", "--include_source_info"]
        subprocess.run(command, check=True)
        found = FileDescriptorSet.FromString(out.read_bytes())
    return [_Source(file=file, comments=_comments(file)) for file in found.file]


def _comments(file: FileDescriptorProto) -> dict[Numbers, str]:
    return {
        tuple(one.path): one.leading_comments + one.trailing_comments
        for one in file.source_code_info.location
        if one.leading_comments or one.trailing_comments
    }


def _signature(method: MethodDescriptorProto) -> str:
    asked = _stream(_link(method.input_type), is_one=method.client_streaming)
    given = _stream(_link(method.output_type), is_one=method.server_streaming)
    return f"{asked} → {given}"


def _stream(shown: str, *, is_one: bool) -> str:
    return f"stream of {shown}" if is_one else shown


def _types(source: _Source) -> Iterator[str]:
    for number, message in enumerate(source.file.message_type):
        yield from _message(source, message, (_MESSAGE, number), "")
    for number, enum in enumerate(source.file.enum_type):
        yield _enum(source, enum, (_ENUM, number), "")


def _message(source: _Source, message: DescriptorProto, path: Numbers, outer: str) -> Iterator[str]:
    name = f"{outer}{message.name}"
    rows = [
        _field(message, field, source.comment(*path, _FIELD, number))
        for number, field in enumerate(message.field)
    ]
    fields = table(("field", "type", "number", "meaning"), rows) if rows else "It has no fields."
    yield _section(f"### {name}", prose(source.comment(*path)), fields)
    for number, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from _message(source, nested, (*path, _NESTED, number), f"{name}.")
    for number, enum in enumerate(message.enum_type):
        yield _enum(source, enum, (*path, _NESTED_ENUM, number), f"{name}.")


def _field(message: DescriptorProto, field: FieldDescriptorProto, comment: str) -> Sequence[str]:
    return f"`{field.name}`", _type(message, field), str(field.number), cell(comment)


def _type(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        key, value = (_type(entry, one) for one in entry.field)
        return f"map of {key} to {value}"
    plain = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    shown = _link(field.type_name) if field.type_name else plain
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {shown}"
    if field.proto3_optional:
        return f"optional {shown}"
    if field.HasField("oneof_index"):
        return f"{shown}, one of `{message.oneof_decl[field.oneof_index].name}`"
    return shown


def _enum(source: _Source, enum: EnumDescriptorProto, path: Numbers, outer: str) -> str:
    rows = [
        (f"`{value.name}`", str(value.number), cell(source.comment(*path, _VALUE, number)))
        for number, value in enumerate(enum.value)
    ]
    values = table(("value", "number", "meaning"), rows)
    return _section(f"### {outer}{enum.name}", prose(source.comment(*path)), values)


def _link(type_name: str) -> str:
    """A link to the section of a type of the package, by its full name `.rlm.v1.Name`."""
    name = type_name.split(".v1.", 1)[1]
    return f"[{name}](#{name.replace('.', '').lower()})"
