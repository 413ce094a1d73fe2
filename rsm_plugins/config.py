"""The settings of `rsm-plugin serve`: one YAML file, one typed table, refusals that name the key
and what is allowed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from kip405.errors import Invalid
from rsm_plugins.addresses import Address
from rsm_plugins.file_threads import THREADS_DEFAULT
from rsm_plugins.keys import check_prefix
from rsm_plugins.spool import SPOOLED_COPIES_DEFAULT

SWEEP_GRACE_MS_DEFAULT = 3_600_000
PLUGINS = ("local",)
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """What the plugin is told; see SETTINGS for the meaning of each."""

    listen: str
    plugin: str
    root: Path
    prefix: str
    allow_insecure: bool
    log_level: str
    shared_volume: bool
    source_folders: tuple[Path, ...] | None
    file_threads: int
    copies_by_bytes_max: int
    sweep_grace_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table; `default` None with `required` false means absent."""

    key: str
    field: str
    check: Callable[[object], object]
    allowed: str
    doc: str
    default: object = None
    required: bool = False


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _listen(value: object) -> str:
    return str(Address.parse(_text(value)))


def _folder(value: object) -> Path:
    path = Path(_text(value))
    if not path.is_absolute():
        raise ValueError
    return path


def _folders(value: object) -> tuple[Path, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(_folder(item) for item in value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _one_of(allowed: tuple[str, ...]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in allowed:
            raise ValueError
        return str(value)

    return check


def _number(minimum: int, maximum: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if type(value) is not int or not minimum <= value <= maximum:
            raise ValueError
        return value

    return check


SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="listen",
        field="listen",
        check=_listen,
        allowed="127.0.0.1:PORT (0 takes a free one) or unix:/short/path",
        doc="Where the plugin listens.",
        required=True,
    ),
    Setting(
        key="plugin",
        field="plugin",
        check=_one_of(PLUGINS),
        allowed=" | ".join(PLUGINS),
        doc="Which store.",
        default="local",
    ),
    Setting(
        key="rsm.config.root",
        field="root",
        check=_folder,
        allowed="an absolute path",
        doc="Directory of the store. It must exist: one that is away is never created anew.",
        required=True,
    ),
    Setting(
        key="rsm.config.prefix",
        field="prefix",
        check=lambda value: check_prefix(_text(value)),
        allowed="path components joined by single slashes, none at either end",
        doc="Prefix of every key below the root.",
        default="",
    ),
    Setting(
        key="allow_insecure",
        field="allow_insecure",
        check=_flag,
        allowed="true | false",
        doc="Listen on an address others can reach, without TLS and token.",
        default=False,
    ),
    Setting(
        key="log_level",
        field="log_level",
        check=_one_of(LOG_LEVELS),
        allowed=" | ".join(LOG_LEVELS),
        doc="What is logged, as JSON lines on standard error.",
        default="info",
    ),
    Setting(
        key="shared.volume",
        field="shared_volume",
        check=_flag,
        allowed="true | false",
        doc="Hand over fetched ranges by path to clients that prove they see the store.",
        default=True,
    ),
    Setting(
        key="shared.source.dirs",
        field="source_folders",
        check=_folders,
        allowed="a list of absolute paths",
        doc="Folders whose files may be copied by path. Without it: any file while the address is "
        "private to this machine, else none.",
    ),
    Setting(
        key="file.threads",
        field="file_threads",
        check=_number(1, 256),
        allowed="1 to 256",
        doc="Threads for file work, and so the bound on files open at once.",
        default=THREADS_DEFAULT,
    ),
    Setting(
        key="copies.by.bytes.max",
        field="copies_by_bytes_max",
        check=_number(1, 1024),
        allowed="1 to 1024",
        doc="Copies that may arrive as bytes at once; each takes a segment's size of disk.",
        default=SPOOLED_COPIES_DEFAULT,
    ),
    Setting(
        key="sweep.grace.ms",
        field="sweep_grace_ms",
        check=_number(0, 2**53),
        allowed="0 or more milliseconds",
        doc="Age from which temporary files of crashed copies are removed at start.",
        default=SWEEP_GRACE_MS_DEFAULT,
    ),
)


def load_settings(path: Path) -> PluginSettings:
    """Settings of a YAML file; Invalid names the file, the key and what is allowed."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    try:
        return settings_of(content if content is not None else {})
    except Invalid as error:
        raise Invalid(f"{path}: {error}") from error


def settings_of(content: object) -> PluginSettings:
    """Settings of what a YAML document held; Invalid names the key and what is allowed."""
    if not isinstance(content, Mapping):
        raise Invalid("a mapping of settings is needed, key: value")
    known = {setting.key for setting in SETTINGS}
    for key in content:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(sorted(known))}"
            raise Invalid(f"{key} is no setting; {hint}")
    fields: dict[str, Any] = {item.field: _value(item, content.get(item.key)) for item in SETTINGS}
    settings = PluginSettings(**fields)
    try:
        Address.parse(settings.listen).require_private(settings.allow_insecure)
    except Invalid as error:
        raise Invalid(f"listen: {error}") from error
    return settings


def _value(setting: Setting, value: object) -> object:
    if value is None:
        if setting.required:
            raise Invalid(f"{setting.key} is missing; allowed: {setting.allowed}")
        return setting.default
    try:
        return setting.check(value)
    except (ValueError, Invalid) as error:
        reason = f" ({error})" if isinstance(error, Invalid) else ""
        raise Invalid(
            f"{setting.key}: {value!r} is not allowed{reason}; allowed: {setting.allowed}"
        ) from error
