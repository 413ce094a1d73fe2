"""The options that Spark passes: a map of strings with case-insensitive keys, read by type.

A wrong value always raises OptionError with the option's name as documented. This module must not
know what an option means.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rlm_spark.plan.offset_specs import OptionError

KNOWN_OPTIONS: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    "readMode",
    "pushdown",
    "rlm.endpoints",
    "rlm.principal",
    "rlm.token",
    "rlm.token.file",
    "rlm.tls.ca.file",
    "rlm.tls.cert.file",
    "rlm.tls.key.file",
    "rlm.tls.server.name",
    "rlm.call.timeout.ms",
)

_MAX_LONG: Final = (1 << 63) - 1
# JavaUtils.timeStringAs of Spark; a bare number is milliseconds.
_UNIT_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class OptionMap(Mapping[str, str]):
    """A copy of a query's options; lookups by any case, iteration gives lower-case keys."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {key.lower(): value for key, value in options.items()}

    def __getitem__(self, key: str) -> str:
        return self._values[key.lower()]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"OptionMap({', '.join(sorted(self._values))})"

    def boolean(self, key: str, *, default: bool) -> bool:
        """`true` or `false` in any case."""
        text = self.get(key, str(default)).strip().lower()
        if text not in ("true", "false"):
            raise OptionError(f"{key} must be true or false, got '{self[key]}'")
        return text == "true"

    def whole(self, key: str, *, biggest: int = _MAX_LONG) -> int | None:
        """A whole number from 0 on, None where the option is not given."""
        if key not in self:
            return None
        text = self[key].strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or int(text) > biggest:
            raise OptionError(f'{key} must be a whole number. For input string: "{self[key]}"')
        if int(text) < 0:
            raise OptionError(f"{key} must not be negative, got {text}")
        return int(text)

    def positive(self, key: str, *, biggest: int = _MAX_LONG) -> int | None:
        """A whole number from 1 on, None where the option is not given."""
        if key in self and re.fullmatch(r"\s*-[0-9]+\s*", self[key]):
            raise OptionError(f"{key} must be positive")
        value = self.whole(key, biggest=biggest)
        if value == 0:
            raise OptionError(f"{key} must be positive")
        return value

    def duration_ms(self, key: str, default: str) -> int:
        """Milliseconds out of a text like `15m`, `30s`, `500ms` or `500`."""
        text = self.get(key, default).strip().lower()
        found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]{0,3})", text)
        if found is None or found[2] not in _UNIT_MS:
            raise OptionError(f"{key} must be a time such as 15m, 30s or 500ms, got '{text}'")
        return int(found[1]) * _UNIT_MS[found[2]]

    def text(self, key: str) -> str | None:
        """The text without spaces around it, None where not given or empty."""
        return self.get(key, "").strip() or None
