"""Decides by formats whether this version may work beside what others have written (H6). Pure.

The table of our formats is here, since nothing below knows records and objects at once. A record of
a kind that is not known is no newer format: it stops its own partition (`rlmm/records.py`), or is
one that services may leave out. A change that an older service must not leave out gets a name in
this table, or a new version of one.
"""

from collections.abc import Iterator
from typing import Final

from kip405.indexes import OBJECT_VERSION
from kip405.segments import ENVELOPE_VERSION
from rlmm.formats import Formats
from rlmm.records import FORMAT_VERSION as LEDGER_VERSION
from rlmm.records import LAYOUT_VERSION
from rlmm.settings_codec import FORMAT_VERSION as SETTINGS_VERSION
from rlmm.settings_records import ReaderRecord, ServiceRecord
from rlmm.settings_view import SettingsView
from rsm_plugins.layout.manifest import IDENTITY_VERSION, MANIFEST_VERSION

_WRITTEN: Final = {
    "settings": SETTINGS_VERSION,
    "ledger": LEDGER_VERSION,
    "custom-metadata": ENVELOPE_VERSION,
    "indexes": OBJECT_VERSION,
    "manifest": MANIFEST_VERSION,
    "store-identity": IDENTITY_VERSION,
}
_READ: Final = {**_WRITTEN, "ledger": LAYOUT_VERSION}
"""Ledger records of segments of another layout than `kafka` are of a version of their own: where
there is one, an older service does not start; a heartbeat would keep it away for ever.
"""
REMEDY: Final = "install the version that wrote it, or a later one, here too: docs/upgrade.md"


def own_formats(software: str) -> Formats:
    """Of this version, whose name is `software`."""
    return Formats(software=software, writes=_WRITTEN, reads=_READ)


def reader_formats(software: str) -> Formats:
    """Of a reader of this version: it writes its heartbeat, and no object."""
    return Formats(software=software, writes={"settings": SETTINGS_VERSION}, reads=_READ)


def newer_format(own: Formats, view: SettingsView, ledger: str | None) -> str | None:
    """Why a service of our formats may not begin, in one line; None = it reads everything.

    `ledger`: the problem of a ledger record of a newer format, None = there is none. The heartbeat
    of a service that is gone counts like any other: what it has written is still there.
    """
    stated = next(_not_read(own, view), None)  # names both versions of the software
    record = view.newer_format or ledger
    if stated is not None or record is None:
        return stated
    reads = f"settings {own.reads['settings']} and ledger {own.reads['ledger']}"
    return f"{record}; this is version {own.software}, which reads {reads}: {REMEDY}"


def _not_read(own: Formats, view: SettingsView) -> Iterator[str]:
    beats: list[ServiceRecord | ReaderRecord] = [
        *(record for record, _ in view.services()),
        *(record for record, _ in view.readers()),
    ]
    for beat in beats:
        if beat.formats is None:
            continue
        for name in own.not_read(beat.formats):
            yield (
                f"{beat.key} has run version {beat.formats.software}, which writes format {name} "
                f"{beat.formats.writes[name]}; this is version {own.software}, which reads {name} "
                f"{own.reads.get(name, 0)}: {REMEDY}"
            )
