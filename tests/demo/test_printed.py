"""What Java's console consumer prints is expected byte for byte."""

import pytest

from rlm_sandbox.demo.comparison import Kind
from rlm_sandbox.demo.content import DemoRecord
from rlm_sandbox.demo.read_java import (
    PrintedCheck,
    parsed_position,
    printed_content,
    printed_position,
)
from rlm_sandbox.demo.report import DemoError
from tests.demo.builders import PARTITION, right_read, yardstick


def record(**fields: object) -> DemoRecord:
    plain = DemoRecord(partition=0, timestamp_ms=5, key=b"k", value=b"v", headers=())
    return plain._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (record(), b"NO_HEADERS\tk\tv"),
        (record(key=None, value=None), b"NO_HEADERS\t<null>\t<null>"),
        (record(key=b"", value=b""), b"NO_HEADERS\t\t"),
        (record(headers=(("a", b"1"), ("a", None))), b"a:1,a:<null>\tk\tv"),
        (record(headers=(("\u00f6", b""),)), b"\xc3\xb6:\tk\tv"),
        (record(value=b"\xff\t\x00"), b"NO_HEADERS\tk\t\xff\t\x00"),
    ],
)
def test_content(given: DemoRecord, expected: bytes) -> None:
    assert printed_content(given) == expected


def test_a_position_is_parsed_as_it_is_printed() -> None:
    line = printed_position(3, 77, 1_700_000_000_000) + b"\tNO_HEADERS\tk\tv\twith tab"
    assert parsed_position(line) == (3, 77, 1_700_000_000_000, b"NO_HEADERS\tk\tv\twith tab")


@pytest.mark.parametrize(
    "line",
    [b"", b"WARN something", b"LogAppendTime:1\tPartition:0\tOffset:0\tx", b"a\tb\tc\td"],
)
def test_what_is_no_record_is_an_error(line: bytes) -> None:
    with pytest.raises(DemoError, match="console consumer printed"):
        PrintedCheck(yardstick()).see(line)


def printed_lines() -> list[bytes]:
    return [
        b"%s\t%s\n" % (printed_position(PARTITION, offset, one.timestamp_ms), printed_content(one))
        for offset, one in right_read(yardstick())
    ]


def test_a_right_output_is_equal_in_count_and_digest() -> None:
    check = PrintedCheck(yardstick())
    for line in printed_lines():
        check.see(line)
    result = check.finish()
    assert result.comparison.is_equal
    assert result.digest == result.expected_digest


def test_an_altered_line_is_found() -> None:
    lines = printed_lines()
    lines[3] = lines[3].removesuffix(b"\n") + b"!\n"
    check = PrintedCheck(yardstick())
    for line in lines:
        check.see(line)
    result = check.finish()
    assert result.comparison.counts == {Kind.ALTERED: 1}
    assert result.digest != result.expected_digest


def test_a_line_too_few_is_found() -> None:
    check = PrintedCheck(yardstick())
    for line in printed_lines()[:-1]:
        check.see(line)
    assert check.finish().comparison.counts == {Kind.MISSING: 1}
