"""Values that must not be shown, masked in whatever text they turn up in. Pure."""

import json
import re
from collections.abc import Mapping, Sequence

from kip405.errors import Invalid
from rsm_plugins.settings_reader import secret_values
from rsm_plugins.store_kind import KIND_NAMES, store_kind

MASK = "***"
_SECRET_WORDS = re.compile(r"secret|token|password|passphrase|credential|access\.key|external\.id")


def masked(text: str, secrets: Sequence[str]) -> str:
    """The text with every secret replaced, also as JSON and Python write it; longer ones first, as
    one may be part of another.
    """
    spellings = {
        spelling
        for secret in secrets
        for spelling in (
            secret,
            json.dumps(secret)[1:-1],
            json.dumps(secret, ensure_ascii=False)[1:-1],
            repr(secret)[1:-1],
        )
    }
    for spelling in sorted(spellings, key=len, reverse=True):
        text = text.replace(spelling, MASK)
    return text


def secrets_of(config: Mapping[str, object]) -> tuple[str, ...]:
    """The secrets among a plugin's settings: by the table of a kind we know, else by the words in
    the key.
    """
    kind = config.get("plugin")
    if kind in KIND_NAMES:
        try:
            return secret_values(config, store_kind(str(kind)).settings)
        except Invalid:  # its library is not here
            pass
    return tuple(
        str(value)
        for key, value in config.items()
        if value not in (None, "") and _SECRET_WORDS.search(key.lower())
    )
