"""Durations and sizes as people write them, in settings and on command lines."""

import re

from kip405.errors import Invalid

_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_DURATION_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_SIZE_UNITS_BYTES = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "pib": 1 << 50,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "pb": 10**15,
}


def parse_duration_ms(text: str) -> int:
    """`180d`, `90m`, `1w`, plain ms, -1 or -2 -> milliseconds; Invalid says what is allowed."""
    return _parse(
        text, _DURATION_UNITS_MS, "a duration such as 180d, 12h, 30m, 45s or milliseconds"
    )


def parse_size_bytes(text: str) -> int:
    """`2TiB`, `500MB`, plain bytes, -1 or -2 -> bytes; Invalid says what is allowed."""
    return _parse(text, _SIZE_UNITS_BYTES, "a size such as 2TiB, 500GiB, 10MB or bytes")


def _parse(text: str, units: dict[str, int], allowed: str) -> int:
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2].lower() not in units:
        raise Invalid(f"{text!r} is not {allowed}; -1 means no limit")
    number, unit = found[1], found[2].lower()
    if number.startswith("-"):
        if unit or number not in ("-1", "-2"):
            raise Invalid(f"{text!r} is negative; only -1 (no limit) and -2 (local: as total) are")
        return int(number)
    whole, _, decimals = number.partition(".")
    scale: int = 10 ** len(decimals)
    return int(whole + decimals) * units[unit] // scale
