"""Which versions may begin beside what others have written: by their formats, named in one line."""

import pytest

from rlm.plans.formats import newer_format, own_formats, reader_formats
from rlmm.formats import Formats
from rlmm.settings_records import ReaderRecord, ServiceRecord, SettingsRecord
from tests.builders.ledger import MemorySettings

OURS = own_formats("1.2.0")
LATER = Formats(
    software="1.3.0",
    writes={**OURS.writes, "manifest": OURS.writes["manifest"] + 1},
    reads={**OURS.reads, "manifest": OURS.reads["manifest"] + 1},
)


def service(formats: Formats | None, node_id: int = 2, version: str = "1.3.0") -> ServiceRecord:
    return ServiceRecord(
        node_id=node_id, listen={}, advertised={}, version=version, formats=formats
    )


def reader(formats: Formats | None) -> ReaderRecord:
    return ReaderRecord(grpc_address="r:1", http_address="r:2", version="1.3.0", formats=formats)


def refusal(*records: SettingsRecord, own: Formats = OURS, ledger: str | None = None) -> str | None:
    settings = MemorySettings()
    for record in records:
        settings.write(record)
    return newer_format(own, settings.view, ledger)


def test_one_may_begin_beside_its_own_and_older_versions() -> None:
    assert refusal(service(OURS), reader(OURS), service(None, node_id=3)) is None
    assert refusal(service(OURS), own=LATER) is None


@pytest.mark.parametrize("record", [service(LATER), reader(LATER)], ids=["service", "reader"])
def test_h06_a_version_that_writes_what_is_not_read_here_is_named_with_ours(
    record: SettingsRecord,
) -> None:
    assert refusal(service(OURS, node_id=1), record) == (
        f"{record.key} has run version 1.3.0, which writes format manifest 2; this is version "
        "1.2.0, which reads manifest 1: install the version that wrote it, or a later one, here "
        "too: docs/upgrade.md"
    )


def test_h06_a_format_that_is_not_known_here_is_not_read_here() -> None:
    formats = Formats(software="1.4.0", writes={"legal-hold": 1}, reads={"legal-hold": 1})
    assert "legal-hold 1; this is version 1.2.0, which reads legal-hold 0" in (
        refusal(service(formats)) or ""
    )


def test_what_a_later_version_reads_beyond_what_it_writes_stops_nobody() -> None:
    """A format is read one version before it is written, so that one can go back."""
    reads_more = Formats(software="1.3.0", writes=OURS.writes, reads=LATER.reads)
    assert refusal(service(reads_more)) is None


def test_h06_a_heartbeat_that_an_older_version_took_over_still_says_what_was_written() -> None:
    """It wrote the field again, which it does not know, under its own version."""
    assert "has run version 1.3.0" in (refusal(service(LATER, version="1.1.0")) or "")


def test_h06_a_version_one_step_back_still_says_what_a_later_one_has_written() -> None:
    back = Formats(software="1.2.5", writes=OURS.writes, reads=LATER.reads)
    said = back.with_written(LATER)
    assert said == Formats(software="1.3.0", writes=LATER.writes, reads=LATER.reads)
    assert "has run version 1.3.0" in (refusal(service(said)) or "")
    assert said.with_written(LATER) == said and back.with_written(said) == said


def test_a_version_names_its_own_formats_where_nothing_newer_was_written() -> None:
    assert OURS.with_written(None) is OURS and OURS.with_written(OURS) is OURS
    assert LATER.with_written(OURS) is LATER
    gone = Formats(software="1.1.0", writes={"legal-hold": 1}, reads={})
    assert OURS.with_written(gone).writes == {**OURS.writes, "legal-hold": 1}


def test_a_reader_that_goes_first_stops_no_service() -> None:
    """It writes nothing but its heartbeat."""
    assert reader_formats("1.3.0").writes.keys() == {"settings"}
    assert refusal(reader(reader_formats("1.3.0"))) is None


def test_h06_a_settings_record_of_a_newer_format_is_named_with_what_is_read() -> None:
    settings = MemorySettings()
    settings.spoil("freeze", b'{"v":2}')
    why = newer_format(OURS, settings.view, None) or ""
    assert why.startswith(
        "settings offset 0: settings record b'freeze': v=2 is not known; this is "
    )
    assert "version 1.2.0, which reads settings 1 and ledger 2: install the version" in why
    settings.remove("freeze")
    assert newer_format(OURS, settings.view, None) is None


@pytest.mark.parametrize("value", [b"{", b'{"v":"x"}', b'{"v":0}', b'{"v":1}', b'{"v":true}'])
def test_a_damaged_record_is_no_newer_format(value: bytes) -> None:
    """It stops trims and deletions, as before; no other version reads it either."""
    settings = MemorySettings()
    settings.spoil("freeze", value)
    assert settings.view.problem
    assert newer_format(OURS, settings.view, None) is None


def test_h06_a_ledger_record_of_a_newer_format_is_named() -> None:
    assert (refusal(ledger="ledger record version rlm.v=2 is not known") or "").startswith(
        "ledger record version rlm.v=2 is not known; this is version 1.2.0, which reads"
    )
