"""An independent codec, straight from Kafka's message JSON, to judge `kafka_protocol` by.

It shares no code with the package under test: it interprets the JSON of the kafka-clients jar
for every value. Values are dicts with Kafka's CamelCase names; `snake` turns them into ours.
"""

import json
import random
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
UNKNOWN_TAGS = "_unknown_tags"
FIXED = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "int64": ">q",
    "float64": ">d",
}
LIMITS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def load_messages(jar: Path) -> dict[str, Json]:
    """All messages of the jar by name, `FetchRequest` and so on."""
    messages = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                message = json.loads(text)
                messages[message["name"]] = message
    return messages


def version_range(text: str | None) -> tuple[int, int]:
    """Kafka's notation as inclusive bounds; nothing and "none" are empty."""
    if not text or text == "none":
        return (0, -1)
    if text.endswith("+"):
        return (int(text[:-1]), 2**15 - 1)
    low, _, high = text.partition("-")
    return (int(low), int(high or low))


def within(text: str | None, version: int) -> bool:
    low, high = version_range(text)
    return low <= version <= high


def snake_name(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def snake(value: Any) -> Any:
    """The same value with our names."""
    if isinstance(value, Mapping):
        return {k if k == UNKNOWN_TAGS else snake_name(k): snake(v) for k, v in value.items()}
    if isinstance(value, list):
        return [snake(element) for element in value]
    return value


class Message:
    """One message of the JSON in one version."""

    def __init__(self, spec: Json, version: int) -> None:
        self.spec = spec
        self.version = version
        self.flexible = within(spec.get("flexibleVersions"), version)
        self.common = {one["name"]: one["fields"] for one in spec.get("commonStructs", ())}

    def fields(self, fields: list[Json]) -> Iterator[Json]:
        return (one for one in fields if within(one["versions"], self.version))

    def struct_fields(self, field: Json) -> list[Json] | None:
        base = field["type"].removeprefix("[]")
        found: list[Json] | None = field.get("fields") or self.common.get(base)
        return found

    def default(self, field: Json) -> Any:
        if field.get("default") == "null":
            return None
        kind = field["type"]
        if kind.startswith("[]"):
            return []
        if kind in LIMITS:
            return int(str(field.get("default", 0)), 0)
        text = field.get("default", "")
        simple = {"bool": False, "string": text, "uuid": bytes(16), "float64": 0.0}
        if kind == "bool":
            return str(field.get("default", "false")) in ("true", "True")
        if kind in ("bytes", "records"):
            return b""
        if kind in simple:
            return simple[kind]
        inner = self.struct_fields(field)
        assert inner is not None, field
        return {one["name"]: self.default(one) for one in self.fields(inner)}

    # -- random values

    def generate(self, rng: random.Random) -> Json:
        return self._struct_value(self.spec["fields"], rng)

    def _struct_value(self, fields: list[Json], rng: random.Random) -> Json:
        value = {one["name"]: self._field_value(one, rng) for one in self.fields(fields)}
        if self.flexible and rng.random() < 0.2:
            numbers = sorted(rng.sample(range(50, 5000), rng.randint(1, 2)))
            value[UNKNOWN_TAGS] = [(n, rng.randbytes(rng.randint(0, 5))) for n in numbers]
        return value

    def _field_value(self, field: Json, rng: random.Random) -> Any:
        if "tag" in field and rng.random() < 0.5:
            return self.default(field)
        if within(field.get("nullableVersions"), self.version) and rng.random() < 0.25:
            return None
        kind = field["type"]
        if kind.startswith("[]"):
            element = {**field, "type": kind[2:], "nullableVersions": None}
            element.pop("tag", None)
            return [self._field_value(element, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        if kind in LIMITS:
            low, high = LIMITS[kind]
            return rng.choice((low, high, rng.randint(low, high), rng.randint(0, 100)))
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return rng.choice((0.0, -1.5, 2.0**60, rng.random()))
        if kind == "uuid":
            return rng.randbytes(16)
        if kind in ("bytes", "records"):
            return rng.randbytes(rng.choice((0, 1, 30, 126, 127, 128, 300)))
        if kind == "string":
            size = rng.choice((0, 1, 9, 9, 126, 127, 140))
            return "".join(rng.choice("abc-_.09\u00e4\u4e16") for _ in range(size))
        inner = self.struct_fields(field)
        assert inner is not None, field
        return self._struct_value(inner, rng)

    # -- bytes

    def encode(self, value: Json) -> bytes:
        return self._struct(self.spec["fields"], value)

    def _struct(self, fields: list[Json], value: Json) -> bytes:
        out = b""
        tags: dict[int, bytes] = dict(value.get(UNKNOWN_TAGS, ()))
        for one in self.fields(fields):
            given = value.get(one["name"], self.default(one))
            if within(one.get("taggedVersions"), self.version):
                if given != self.default(one):
                    tags[one["tag"]] = self._field(one, given)
            else:
                out += self._field(one, given)
        if self.flexible:
            out += uvarint(len(tags))
            for tag in sorted(tags):
                out += uvarint(tag) + uvarint(len(tags[tag])) + tags[tag]
        return out

    def _field(self, field: Json, value: Any) -> bytes:
        kind = field["type"]
        compact = self.flexible and field.get("flexibleVersions") != "none"
        if kind.startswith("[]"):
            element = {**field, "type": kind[2:]}
            head = self._length(value, compact, ">i")
            return head + b"".join(self._field(element, one) for one in value or ())
        if kind in FIXED:
            return struct.pack(FIXED[kind], value)
        if kind == "uuid":
            return bytes(value)
        if kind == "string":
            encoded = None if value is None else value.encode()
            return self._length(encoded, compact, ">h") + (encoded or b"")
        if kind in ("bytes", "records"):
            return self._length(value, compact, ">i") + (value or b"")
        inner = self.struct_fields(field)
        assert inner is not None, field
        return self._struct(inner, value)

    def _length(self, value: Any, compact: bool, layout: str) -> bytes:
        size = -1 if value is None else len(value)
        return uvarint(size + 1) if compact else struct.pack(layout, size)


def uvarint(value: int) -> bytes:
    out = []
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


class Oracle:
    """Frames (without length) of Kafka's messages, headers by Kafka's rules."""

    def __init__(self, messages: dict[str, Json]) -> None:
        self.messages = messages

    def message(self, name: str, version: int) -> Message:
        return Message(self.messages[name], version)

    def valid_versions(self, name: str) -> range:
        low, high = version_range(self.messages[name]["validVersions"])
        return range(low, high + 1)

    def request_frame(
        self, api: str, version: int, value: Json, client_id: str | None = "client"
    ) -> bytes:
        message = self.message(f"{api}Request", version)
        header = self.message("RequestHeader", 2 if message.flexible else 1)
        head = {
            "RequestApiKey": message.spec["apiKey"],
            "RequestApiVersion": version,
            "CorrelationId": 77,
            "ClientId": client_id,
        }
        return header.encode(head) + message.encode(value)

    def response_frame(self, api: str, version: int, value: Json) -> bytes:
        message = self.message(f"{api}Response", version)
        flexible = message.flexible and api != "ApiVersions"
        header = self.message("ResponseHeader", 1 if flexible else 0)
        return header.encode({"CorrelationId": 77}) + message.encode(value)
