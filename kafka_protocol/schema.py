"""A table-driven codec: one `Schema` per message, compiled per version into a reader and a writer.

It covers all versions of the few APIs that are read, from tables that a test compares with Kafka's
own message JSON. Values are dicts with the snake_case names of Kafka's JSON. A decoded dict has
every field of the schema; fields that its version lacks have Kafka's default. Tagged fields that
the table does not know are kept under `UNKNOWN_TAGS` and written back. This module must not know
any single API.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from kafka_protocol.primitives import ZERO_UUID, Buffer, Reader, WireError, Writer

UNKNOWN_TAGS = "_unknown_tags"
_NEVER = 0x7FFF

Value = dict[str, Any]
_Read = Callable[[Reader], object]
_Write = Callable[[Writer, object], None]


class Scalar(Enum):
    """Primitive types; `records` of Kafka's JSON is BYTES."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """Fields in the order of the wire."""

    fields: tuple["Field", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """Elements of one type."""

    element: Scalar | Struct


FieldType = Scalar | Struct | Array


class VersionRange(NamedTuple):
    """Both ends are inclusive, as in Kafka's ApiVersions."""

    low: int
    high: int

    def has(self, version: int) -> bool:
        """Whether this version is within."""
        return self.low <= version <= self.high


NO_VERSION = VersionRange(0, -1)


def versions(text: str) -> VersionRange:
    """Parse Kafka's notation: "3+", "0-12", "7"; "" is no version at all."""
    if not text:
        return NO_VERSION
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), _NEVER)
    low, _, high = text.partition("-")
    return VersionRange(int(low), int(high or low))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """One row of a table: what Kafka's message JSON says about a field."""

    name: str
    type: FieldType
    versions: VersionRange
    nullable: VersionRange
    default: object
    ignorable: bool
    tag: int | None
    tagged: VersionRange


_ZEROS: dict[Scalar, object] = {
    Scalar.BOOL: False,
    Scalar.UUID: ZERO_UUID,
    Scalar.STRING: "",
    Scalar.BYTES: b"",
}
_UNSET = object()


def field(
    name: str,
    type: FieldType,
    in_versions: str,
    *,
    nullable: str = "",
    default: object = _UNSET,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str = "",
) -> Field:
    """Build a row; `default` unset means Kafka's default of the type."""
    if default is _UNSET:
        default = _ZEROS.get(type, 0) if isinstance(type, Scalar) else None
        if isinstance(type, Array):
            default = ()
    return Field(
        name=name,
        type=type,
        versions=versions(in_versions),
        nullable=versions(nullable),
        default=default,
        ignorable=ignorable,
        tag=tag,
        tagged=versions(tagged),
    )


def struct(*fields: Field) -> Struct:
    """A struct of these fields."""
    return Struct(fields)


def array(*fields: Field) -> Array:
    """An array of structs of these fields."""
    return Array(Struct(fields))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schema:
    """A message body: its name for errors, the versions that are read, the first flexible
    version.
    """

    name: str
    versions: VersionRange
    flexible_from: int
    body: Struct


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Api:
    """An API: key, handled versions, request and response tables."""

    key: int
    name: str
    versions: VersionRange
    flexible_from: int
    request: Schema
    response: Schema

    def is_flexible(self, version: int) -> bool:
        """Whether this version uses compact types and tagged fields (KIP-482)."""
        return version >= self.flexible_from


def api(
    key: int,
    name: str,
    in_versions: str,
    *,
    flexible_from: int,
    request: tuple[Field, ...],
    response: tuple[Field, ...],
) -> Api:
    """Build an API of its two tables."""
    both = versions(in_versions)
    return Api(
        key=key,
        name=name,
        versions=both,
        flexible_from=flexible_from,
        request=Schema(
            name=f"{name} request", versions=both, flexible_from=flexible_from, body=Struct(request)
        ),
        response=Schema(
            name=f"{name} response",
            versions=both,
            flexible_from=flexible_from,
            body=Struct(response),
        ),
    )


def decode(schema: Schema, version: int, buffer: Buffer, position: int = 0) -> tuple[Value, int]:
    """Decode one message body; answer (value, next position). Raises `WireError`."""
    reader = Reader(buffer, position, what=f"{schema.name} v{version}")
    value = _compiled(schema, version).read(reader)
    return value, reader.position


def encode(schema: Schema, version: int, value: Mapping[str, Any]) -> bytes:
    """Encode one message body; missing fields take Kafka's default. Raises `WireError`.

    A field that this version lacks must be absent, at its default, or ignorable, and a name that
    no version has is an error, as in Kafka's generated classes.
    """
    writer = Writer(what=f"{schema.name} v{version}")
    _compiled(schema, version).write(writer, value)
    return bytes(writer.buffer)


@cache
def _compiled(schema: Schema, version: int) -> "_StructCodec":
    if not schema.versions.has(version):
        raise WireError(f"{schema.name} v{version}: only {schema.versions} are handled")
    return _StructCodec(schema.body, version, flexible=version >= schema.flexible_from)


_SCALARS: dict[Scalar, tuple[_Read, _Write]] = {
    Scalar.BOOL: (Reader.boolean, Writer.boolean),
    Scalar.INT8: (Reader.int8, Writer.int8),
    Scalar.INT16: (Reader.int16, Writer.int16),
    Scalar.UINT16: (Reader.uint16, Writer.uint16),
    Scalar.INT32: (Reader.int32, Writer.int32),
    Scalar.INT64: (Reader.int64, Writer.int64),
    Scalar.FLOAT64: (Reader.float64, Writer.float64),
    Scalar.UUID: (Reader.uuid, Writer.uuid),
    Scalar.STRING: (Reader.nullable_string, Writer.nullable_string),
    Scalar.BYTES: (Reader.nullable_bytes, Writer.nullable_bytes),
}
_COMPACT: dict[Scalar, tuple[_Read, _Write]] = {
    **_SCALARS,
    Scalar.STRING: (Reader.compact_nullable_string, Writer.compact_nullable_string),
    Scalar.BYTES: (Reader.compact_nullable_bytes, Writer.compact_nullable_bytes),
}
_NEVER_NULL = frozenset(Scalar) - {Scalar.STRING, Scalar.BYTES}


class _FieldCodec:
    """Reads and writes one field in one version."""

    __slots__ = ("default", "name", "read", "write")

    def __init__(self, row: Field, version: int, *, flexible: bool) -> None:
        self.name = row.name
        read, write = _type_codec(row.type, version, flexible=flexible)
        may_be_null = row.nullable.has(version)
        if may_be_null or (isinstance(row.type, Scalar) and row.type in _NEVER_NULL):
            self.read, self.write = read, write
        else:
            self.read, self.write = _not_null(row.name, read, write)
        self.default = _default(row)


class _StructCodec:
    """Reads and writes one struct in one version."""

    __slots__ = ("_absent", "_flexible", "_known_tags", "_names", "_optional", "_plain")

    def __init__(self, body: Struct, version: int, *, flexible: bool) -> None:
        self._flexible = flexible
        present = [row for row in body.fields if row.versions.has(version)]
        tagged = [row for row in present if row.tagged.has(version)]
        self._plain = [
            _FieldCodec(row, version, flexible=flexible) for row in present if row not in tagged
        ]
        self._known_tags = {
            row.tag: _FieldCodec(row, version, flexible=flexible)
            for row in tagged
            if row.tag is not None
        }
        self._absent = [row for row in body.fields if row not in present]
        self._optional = [*tagged, *self._absent]
        self._names = {row.name for row in body.fields} | {UNKNOWN_TAGS}

    def read(self, reader: Reader) -> Value:
        """Every field of the table, in its order on the wire, then absent ones at default."""
        value: Value = {codec.name: codec.read(reader) for codec in self._plain}
        for row in self._optional:
            value[row.name] = _default(row)
        if self._flexible:
            self._read_tags(reader, value)
        return value

    def _read_tags(self, reader: Reader, value: Value) -> None:
        unknown: list[tuple[int, bytes]] = []
        for _ in range(reader.uvarint()):
            tag = reader.uvarint()
            size_bytes = reader.uvarint()
            codec = self._known_tags.get(tag)
            if codec is None:
                unknown.append((tag, bytes(reader.view(size_bytes))))
                continue
            end = reader.position + size_bytes
            value[codec.name] = codec.read(reader)
            if reader.position != end:
                raise reader.fail(f"tagged field {codec.name} is not of {size_bytes} bytes")
        if unknown:
            value[UNKNOWN_TAGS] = unknown

    def write(self, writer: Writer, value: object) -> None:
        """Fields of this version in order, then tagged ones that differ from their default."""
        if not isinstance(value, Mapping):
            raise writer.fail(f"a mapping is expected, not {type(value).__name__}")
        self._check_names(writer, value)
        for codec in self._plain:
            codec.write(writer, value.get(codec.name, codec.default))
        if self._flexible:
            self._write_tags(writer, value)

    def _check_names(self, writer: Writer, value: Mapping[str, object]) -> None:
        unknown = value.keys() - self._names
        if unknown:
            raise writer.fail(f"no such fields: {sorted(unknown)}")
        for row in self._absent:
            given = value.get(row.name, row.default)
            if not row.ignorable and given != _default(row) and given != row.default:
                raise writer.fail(f"this version has no field {row.name}")
        if not self._flexible and value.get(UNKNOWN_TAGS):
            raise writer.fail("this version has no tagged fields")

    def _write_tags(self, writer: Writer, value: Mapping[str, Any]) -> None:
        tags: dict[int, bytes] = dict(value.get(UNKNOWN_TAGS, ()))
        for tag, codec in self._known_tags.items():
            if codec.name in value:
                payload = _payload(codec, value[codec.name], writer.what)
                if payload != _payload(codec, codec.default, writer.what):
                    tags[tag] = payload
        writer.uvarint(len(tags))
        for tag in sorted(tags):
            writer.uvarint(tag)
            writer.uvarint(len(tags[tag]))
            writer.raw(tags[tag])


def _payload(codec: _FieldCodec, value: object, what: str) -> bytes:
    inner = Writer(what=f"{what} {codec.name}")
    codec.write(inner, value)
    return bytes(inner.buffer)


def _type_codec(kind: FieldType, version: int, *, flexible: bool) -> tuple[_Read, _Write]:
    if isinstance(kind, Scalar):
        return (_COMPACT if flexible else _SCALARS)[kind]
    if isinstance(kind, Struct):
        inner = _StructCodec(kind, version, flexible=flexible)
        return inner.read, inner.write
    read, write = _type_codec(kind.element, version, flexible=flexible)
    if isinstance(kind.element, Scalar) and kind.element not in _NEVER_NULL:
        read, write = _not_null("array element", read, write)
    if flexible:
        return (
            lambda reader: reader.compact_nullable_array(read),
            lambda writer, value: writer.compact_nullable_array(value, write),
        )
    return (
        lambda reader: reader.nullable_array(read),
        lambda writer, value: writer.nullable_array(value, write),
    )


def _not_null(name: str, read: _Read, write: _Write) -> tuple[_Read, _Write]:
    def read_value(reader: Reader) -> object:
        value = read(reader)
        if value is None:
            raise reader.fail(f"{name} is null")
        return value

    def write_value(writer: Writer, value: object) -> None:
        if value is None:
            raise writer.fail(f"{name} is null")
        write(writer, value)

    return read_value, write_value


def _default(row: Field) -> object:
    """A fresh default: structs and arrays are mutable in a decoded value."""
    if row.default is not None or row.nullable is not NO_VERSION:
        return list(row.default) if isinstance(row.default, tuple) else row.default
    if isinstance(row.type, Struct):
        return {inner.name: _default(inner) for inner in row.type.fields}
    return row.default
