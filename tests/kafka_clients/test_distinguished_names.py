"""Subjects as Java writes them. Each expected text is what X500Principal.getName of Java 17 and of
Java 25 gives for the same bytes.
"""

import pytest

from kafka_clients.distinguished_names import subject_of
from kip405.errors import Invalid
from tests.builders.certificates import der

CN, C, ST, ORG, OU = "550403", "550406", "550408", "55040a", "55040b"
STREET, TITLE, SERIAL = "550409", "55040c", "550405"
UID, DC = "0992268993f22c640101", "0992268993f22c640119"
EMAIL = "2a864886f70d010901"
UTF8, PRINTABLE, T61, IA5, UNIVERSAL, BMP, OCTETS = 0x0C, 0x13, 0x14, 0x16, 0x1C, 0x1E, 0x04


def attribute(kind: str, value: bytes | str, tag: int = UTF8) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return der(0x30, der(0x06, bytes.fromhex(kind)), der(tag, encoded))


def row(*attributes: bytes) -> bytes:
    return der(0x31, *attributes)


def certificate(subject: bytes, *, has_version: bool = True) -> bytes:
    """As much of one as comes before its subject, and nothing else that is right."""
    version = der(0xA0, der(0x02, b"\2")) if has_version else b""
    serial = der(0x02, b"\1" * 200)  # its length has more bytes than one
    fields = (version, serial, der(0x30), der(0x30), der(0x30), der(0x30, subject), der(0x30))
    return der(0x30, der(0x30, *fields), der(0x30), der(0x03, b"\0"))


CASES = [
    pytest.param([], "", id="none"),
    pytest.param(
        [row(attribute(ORG, "kafka-rlm sandbox")), row(attribute(CN, "reader"))],
        "CN=reader,O=kafka-rlm sandbox",
        id="most-special-first",
    ),
    pytest.param(
        [
            row(attribute(DC, "com", IA5)),
            row(attribute(DC, "example", IA5)),
            row(attribute(OU, "a", PRINTABLE), attribute(CN, "b", T61)),
            row(attribute(UID, "u1")),
        ],
        "UID=u1,OU=a+CN=b,DC=example,DC=com",
        id="parts-together",
    ),
    pytest.param(
        [
            row(attribute(C, "DE", PRINTABLE)),
            row(attribute(ST, "B")),
            row(attribute(STREET, "s 1")),
        ],
        "STREET=s 1,ST=B,C=DE",
        id="keywords",
    ),
    pytest.param(
        [
            row(attribute(EMAIL, "a@b.c", IA5)),
            row(attribute(TITLE, "x")),
            row(attribute(SERIAL, "7")),
        ],
        "2.5.4.5=#0c0137,2.5.4.12=#0c0178,1.2.840.113549.1.9.1=#16056140622e63",
        id="numbers",
    ),
    pytest.param(
        [row(attribute(CN, r'a,b+c"d\e<f>g;h=i#j'))],
        r"CN=a\,b\+c\"d\\e\<f\>g\;h\=i\#j",
        id="escapes",
    ),
    pytest.param([row(attribute(CN, "  a b "))], r"CN=\ \ a b\ ", id="outer-spaces"),
    pytest.param([row(attribute(CN, "   "))], r"CN=\ \ \ ", id="spaces-alone"),
    pytest.param([row(attribute(CN, ""))], "CN=", id="empty"),
    pytest.param([row(attribute(CN, "#1"))], r"CN=\#1", id="number-sign"),
    pytest.param([row(attribute(CN, "Jürgen 名"))], "CN=Jürgen 名", id="utf-8"),
    pytest.param([row(attribute(CN, b"\0\0\0A", UNIVERSAL))], "CN=#1c0400000041", id="universal"),
    pytest.param([row(attribute(CN, b"A", OCTETS))], "CN=#040141", id="no-string"),
    pytest.param([row(attribute(CN, "a\tb\rc"))], "CN=a\tb\rc", id="controls"),
    pytest.param([row(attribute(CN, "x" * 300))], "CN=" + "x" * 300, id="long"),
]


@pytest.mark.parametrize(("rows", "text"), CASES)
def test_a_subject_is_written_as_java_does(rows: list[bytes], text: str) -> None:
    assert subject_of(certificate(b"".join(rows))) == text
    assert subject_of(certificate(b"".join(rows), has_version=False)) == text


@pytest.mark.parametrize(
    ("value", "tag"), [(b"J\xfcrgen", T61), (b"\0A\0,", BMP), (b"J\xfcrgen", UTF8)]
)
def test_what_versions_of_java_write_in_different_ways_is_nobody(value: bytes, tag: int) -> None:
    """The second is two letters to Java 25, and four to Java 17."""
    with pytest.raises(Invalid, match="cannot be read"):
        subject_of(certificate(row(attribute(CN, value, tag))))


def test_what_is_no_certificate_is_refused_wherever_it_is_cut() -> None:
    whole = certificate(row(attribute(CN, "reader")))
    for end in range(len(whole)):
        with pytest.raises(Invalid, match="cannot be read"):
            subject_of(whole[:end])
    with pytest.raises(Invalid, match="cannot be read"):
        subject_of(certificate(der(0x31, der(0x31))))
    with pytest.raises(Invalid, match="cannot be read"):
        subject_of(b"\x30\x85\1\1\1\1\1")
