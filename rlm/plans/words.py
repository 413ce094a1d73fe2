"""Sizes and durations in words, for people. Pure."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DAY_MS = 86_400_000
_DURATIONS = (
    (1_000, "s", 120_000),
    (60_000, "min", 7_200_000),
    (3_600_000, "h", 2 * _DAY_MS),
)


def human_bytes(size_bytes: int) -> str:
    """`1.5 GiB`."""
    value = float(size_bytes)
    for unit in _UNITS[:-1]:
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def human_duration(duration_ms: int) -> str:
    """`90 s`, `15 min`, `3 h`, `12 days`: whole units, rounded down."""
    for size_ms, unit, most_ms in _DURATIONS:
        if duration_ms < most_ms:
            return f"{duration_ms // size_ms} {unit}"
    return f"{duration_ms // _DAY_MS} days"
