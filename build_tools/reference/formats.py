"""The golden files of tests/formats, decoded -> docs/reference/formats-by-example.md.

The golden files never change, so the examples are what every version reads and writes.
"""

import dataclasses
import enum
import json
from collections.abc import Iterator, Sequence
from typing import Any

from build_tools.locks import ROOT
from build_tools.reference.markdown import cell, table
from kip405.contracts import IndexType
from kip405.ids import Uuid
from kip405.indexes import IndexesObject, decode_aborted
from kip405.segments import CustomMetadata, EpochEntry
from rlmm.ledger_values import decode_value
from rlmm.records import LedgerKey

_GOLDEN = ROOT / "tests" / "formats"
_HEAD = """\
# Formats by example

[Formats](formats.md) specifies what is stored; each format has an example here. Made from the
golden files in `tests/formats/`, which never change, as this version decodes them.
"""


def generate_docs() -> str:
    """The page, whole."""
    return _HEAD + "".join(f"\n{part.rstrip()}\n" for part in _parts())


def _parts() -> Iterator[str]:
    yield "## Ledger record"
    yield from _ledger()
    yield "## Custom metadata"
    yield _fields(CustomMetadata.decode((_GOLDEN / "custom-metadata.bin").read_bytes()))
    yield "## Settings"
    for line in _lines("settings.txt"):
        key, value = line.split(" ", 1)
        yield f"### {key}"
        yield _json(value)
    yield "## Object keys"
    yield from _keys()
    yield "## Store identity"
    yield _json((_GOLDEN / "rlm-store.json").read_text(encoding="utf-8"))
    yield "## Manifest"
    yield _json((_GOLDEN / "manifest.rsm-manifest").read_text(encoding="utf-8"))
    yield "## Indexes object"
    yield _sections()
    yield "Section 16, aborted transactions:"
    yield _rows(decode_aborted((_GOLDEN / "aborted-transactions.bin").read_bytes()))
    yield "Section 4, leader-epoch lineage, as in Kafka's leader-epoch-checkpoint:"
    yield _text((_GOLDEN / "leader-epoch-lineage.txt").read_text(encoding="utf-8"))


def _ledger() -> Iterator[str]:
    golden = dict(line.split(" ", 1) for line in _lines("ledger.txt"))
    key = LedgerKey.decode(bytes.fromhex(golden["key"]))
    yield "Key:"
    yield _text(golden["key"])
    yield table(
        ("field", "value"),
        [
            ("topic id", f"`{key.partition.topic_id}`"),
            ("partition", str(key.partition.partition)),
            ("segment id", f"`{key.segment_id}`"),
        ],
    )
    yield "Value of a finished copy:"
    value = golden["COPY_SEGMENT_FINISHED"]
    yield _text("\n".join(value[at : at + 64] for at in range(0, len(value), 64)))
    yield _fields(decode_value(bytes.fromhex(value)))


def _keys() -> Iterator[str]:
    for example in json.loads((_GOLDEN / "object-keys.json").read_text(encoding="utf-8")):
        yield f"{example['what'].capitalize()}:"
        yield _text("\n".join(example["keys"]))


def _sections() -> str:
    indexes = IndexesObject.parse((_GOLDEN / "indexes-object.bin").read_bytes())
    rows = []
    for kind in IndexType:
        section = indexes.section(kind)
        size = "absent" if section is None else f"{len(section)} bytes"
        rows.append((str(kind.value), kind.name.lower().replace("_", " "), size))
    return table(("type", "section", "in the example"), rows)


def _fields(value: Any) -> str:
    """One value, a row for each field."""
    names = [field.name for field in dataclasses.fields(value)]
    rows = [(f"`{name}`", cell(_shown(getattr(value, name)))) for name in names]
    return table(("field", "value"), rows)


def _rows(values: Sequence[Any]) -> str:
    """Several values, a column for each field."""
    names = [field.name for field in dataclasses.fields(values[0])]
    rows = [[cell(_shown(getattr(value, name))) for name in names] for value in values]
    return table([f"`{name}`" for name in names], rows)


def _shown(value: Any) -> str:
    match value:
        case bytes():
            return value.hex()
        case Uuid():
            return str(value)
        case tuple():
            return ", ".join(map(_shown, value))
        case EpochEntry():
            return f"epoch {value.epoch} from offset {value.start_offset}"
        case enum.Enum():
            return f"{value.value} ({value.name})"
        case _:
            return str(value)


def _lines(name: str) -> list[str]:
    return (_GOLDEN / name).read_text(encoding="utf-8").splitlines()


def _json(text: str) -> str:
    shown = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return f"```json\n{shown}\n```"


def _text(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"
