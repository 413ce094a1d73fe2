"""The subject of a certificate as Java writes it (X500Principal.getName, RFC 2253). Pure.

Kafka's rules are patterns for exactly this text. Python's own view of a certificate has lost the
kinds of strings and which attributes belong together, so the certificate itself is read, in DER.
"""

from collections.abc import Iterator, Sequence

from kip405.errors import Invalid

_SEQUENCE, _SET, _OID = 0x30, 0x31, 0x06
_VERSION = 0xA0
_LONG_LENGTH, _MOST_LENGTH_BYTES = 0x80, 4
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""All others are written as numbers, and their values as bytes."""
_UTF8, _BMP = 0x0C, 0x1E
_STRINGS = frozenset({_UTF8, 0x13, 0x14, 0x16, 0x1B, _BMP})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString."""
_ESCAPED = frozenset(',=+<>#;"\\')
_OUTER_SPACE = " \r"


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER, most special part first; empty where it has none.
    Invalid: it is no certificate.
    """
    try:
        return _name(_subject(certificate))
    except (IndexError, StopIteration, ValueError) as error:
        raise Invalid(f"the client's certificate cannot be read: {error}") from None


def _subject(certificate: bytes) -> bytes:
    """The encoded names: serial number, signature, issuer and validity are before it."""
    whole = _only(certificate, _SEQUENCE)
    fields = list(_values(_first(whole, _SEQUENCE)))
    if fields[0][0] == _VERSION:
        del fields[0]
    tag, content = fields[4]
    if tag != _SEQUENCE:
        raise ValueError("its subject is none")
    return content


def _name(subject: bytes) -> str:
    rows = [_row(content) for tag, content in _values(subject) if _is(tag, _SET)]
    return ",".join(reversed(rows))


def _row(content: bytes) -> str:
    """Attributes that are one part together, in their own order."""
    return "+".join(_attribute(one) for tag, one in _values(content) if _is(tag, _SEQUENCE))


def _attribute(content: bytes) -> str:
    kind_size = _end(content, 0)
    kind = _number(_only(content[:kind_size], _OID))
    encoded = content[kind_size:]
    tag, value = next(_values(encoded))
    keyword = _KEYWORDS.get(kind)
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or kind}=#{encoded.hex()}"
    return f"{keyword}={_escaped(_text(tag, value))}"


def _text(tag: int, value: bytes) -> str:
    """Java 17 takes the bytes of every kind of string for UTF-8, and Java 25 takes those of others
    for what they are. ValueError where that makes a difference: what the broker has is not known.
    """
    if tag == _BMP or not (tag == _UTF8 or value.isascii()):
        raise ValueError(f"a string of tag {tag:#x} that versions of Java write in different ways")
    return value.decode("utf-8")


def _escaped(text: str) -> str:
    shown = [f"\\{one}" if one in _ESCAPED else one.replace("\0", "\\00") for one in text]
    joined = "".join(shown)
    inner = joined.strip(_OUTER_SPACE)
    lead = joined[: len(joined) - len(joined.lstrip(_OUTER_SPACE))]
    trail = joined[len(lead) + len(inner) :]
    return "".join([*(f"\\{one}" for one in lead), inner, *(f"\\{one}" for one in trail)])


def _number(content: bytes) -> str:
    """An object identifier in dots."""
    parts: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if byte < _LONG_LENGTH:
            parts.append(value)
            value = 0
    first = min(parts[0] // 40, 2)
    return ".".join(map(str, (first, parts[0] - 40 * first, *parts[1:])))


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each value, one after the other."""
    position = 0
    while position < len(data):
        end = _end(data, position)
        yield data[position], data[_content(data, position) : end]
        position = end


def _first(data: bytes, tag: int) -> bytes:
    found, content = next(_values(data))
    _is(found, tag)
    return content


def _only(data: bytes, tag: int) -> bytes:
    found: Sequence[tuple[int, bytes]] = list(_values(data))
    if len(found) != 1:
        raise ValueError(f"{len(found)} values where one is expected")
    _is(found[0][0], tag)
    return found[0][1]


def _is(tag: int, expected: int) -> bool:
    if tag != expected:
        raise ValueError(f"tag {tag:#x} where {expected:#x} is expected")
    return True


def _content(data: bytes, position: int) -> int:
    """Where the content of the value at the position begins."""
    size = data[position + 1]
    return position + 2 + (size & 0x7F if size >= _LONG_LENGTH else 0)


def _end(data: bytes, position: int) -> int:
    size, begin = data[position + 1], _content(data, position)
    if size >= _LONG_LENGTH:
        count = size - _LONG_LENGTH
        if not 0 < count <= _MOST_LENGTH_BYTES:
            raise ValueError(f"a length of {count} bytes")
        size = int.from_bytes(data[position + 2 : begin], "big")
    if begin + size > len(data):
        raise ValueError("it is cut off")
    return begin + size
