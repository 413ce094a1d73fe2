"""Unsigned varints, as in Kafka's flexible messages and protobuf: 7 bits a byte, low first."""


def uvarint(value: int) -> bytes:
    """The bytes of a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
