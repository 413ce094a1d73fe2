"""The demo's records: made again equal, of all kinds, large enough on average."""

import itertools

from rlm_sandbox.demo.content import CODECS, PARTITIONS, Content, Outcome, content_digest, cycles

START_MS = 1_700_000_000_000
CONTENT = Content(seed=405, start_ms=START_MS)
SAMPLE = [CONTENT.record(serial) for serial in range(20_000)]


def test_the_same_seed_makes_the_same_records_in_any_order() -> None:
    again = Content(seed=405, start_ms=START_MS)
    for serial in (19_999, 0, 7, 4_321):
        assert again.record(serial) == SAMPLE[serial]


def test_another_seed_makes_other_records() -> None:
    other = Content(seed=406, start_ms=START_MS)
    assert sum(other.record(serial) == SAMPLE[serial] for serial in range(200)) < 5


def test_all_kinds_of_fields_occur() -> None:
    assert {record.partition for record in SAMPLE} == set(range(PARTITIONS))
    for fields in ([one.key for one in SAMPLE], [one.value for one in SAMPLE]):
        assert None in fields
        assert b"" in fields
    assert () in [record.headers for record in SAMPLE]
    contents = {content for record in SAMPLE for _, content in record.headers}
    assert {None, b""} < contents
    assert any(len(set(dict(one.headers))) < len(one.headers) for one in SAMPLE), "repeated names"
    assert max(len(record.value or b"") for record in SAMPLE) > 32 * 1024


def test_the_average_value_is_at_least_one_kib() -> None:
    assert sum(len(record.value or b"") for record in SAMPLE) / len(SAMPLE) >= 1024


def test_no_field_breaks_a_printed_line() -> None:
    for record in SAMPLE:
        fields = [record.key, record.value, *(content for _, content in record.headers)]
        assert not any(b"\n" in (field or b"") for field in fields)


def test_timestamps_go_forward() -> None:
    times = [record.timestamp_ms for record in SAMPLE]
    assert times[0] == START_MS
    assert all(one < two for one, two in itertools.pairwise(times))


def test_null_empty_and_each_field_give_different_digests() -> None:
    digests = {
        content_digest(None, b"", ()),
        content_digest(b"", None, ()),
        content_digest(b"", b"", ()),
        content_digest(None, None, ()),
        content_digest(b"ab", b"c", ()),
        content_digest(b"a", b"bc", ()),
        content_digest(b"a", b"b", (("h", None),)),
        content_digest(b"a", b"b", (("h", b""),)),
        content_digest(b"a", b"b", (("h", b""), ("i", b""))),
        content_digest(b"a", b"b", (("i", b""), ("h", b""))),
    }
    assert len(digests) == 10


def test_every_codec_is_used_plain_committed_and_aborted() -> None:
    first = list(itertools.islice(cycles(), 60))
    chunks = [one.plain for one in first] + [one.transaction for one in first if one.transaction]
    assert {(chunk.codec, chunk.outcome) for chunk in chunks} == set(
        itertools.product(CODECS, Outcome)
    )


def test_serials_are_used_once_and_without_gaps() -> None:
    first = list(itertools.islice(cycles(), 12))
    chunks = [one.plain for one in first] + [one.transaction for one in first if one.transaction]
    serials = sorted(serial for chunk in chunks for serial in chunk.serials)
    assert serials == list(range(len(serials)))
