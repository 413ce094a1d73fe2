"""One row of a table of settings: key, kind, default, doc. Pure."""

from dataclasses import dataclass
from typing import Any

from rlm.config.values import Kind

REQUIRED = object()
"""Default of a setting that must be given (or found in the broker's files)."""

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table. `default_doc` says what stands in when the default is computed."""

    key: str
    kind: Kind
    default: Any
    doc: str
    unit: str = ""
    secret: bool = False
    default_doc: str = ""
