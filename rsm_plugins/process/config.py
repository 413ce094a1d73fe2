"""The settings of `rsm-plugin serve`: one YAML file. Refusals name the key and what is allowed.

The rows common to every plugin are here; the file names a kind of store, which adds its own rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kip405.addresses import Address
from kip405.errors import Invalid
from kip405.settings import (
    FLAG,
    PATH,
    Kind,
    Refused,
    Table,
    as_text,
    choice,
    integer,
    rows_of,
    setting,
)
from rsm_plugins.contract.server_tls import ServerTls
from rsm_plugins.contract.tls import require_both
from rsm_plugins.files.segment_files import SPOOLED_COPIES_DEFAULT
from rsm_plugins.process.yaml_text import read_text
from rsm_plugins.store_kinds import KIND_NAMES, store_kind
from rsm_plugins.threads import THREADS_DEFAULT

SWEEP_GRACE_MS_DEFAULT = 3_600_000
SWEEP_NEVER_MS = 2**53
"""From this grace on a plugin does not even look for what crashed copies have left."""
HANG_MS_DEFAULT = 60_000
LOG_LEVELS = ("debug", "info", "warning", "error")


def _listen_address(value: Any) -> str:
    try:
        return str(Address.parse_listening(as_text(value)))
    except Invalid as error:
        raise Refused(str(error)) from error


def _folders(value: Any) -> tuple[Path, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(map(PATH.read, value))


_LISTEN = Kind(
    allowed="127.0.0.1:PORT (0 takes a free one) or unix:/short/path", read=_listen_address
)
_FOLDERS = Kind(allowed="a list of absolute paths", read=_folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The settings of a plugin: the rows that every kind of store has, and those of its kind."""

    listen: str = setting(
        "listen",
        _LISTEN,
        "Address at which the plugin listens.",
    )
    kind: str = setting(
        "plugin",
        choice(*KIND_NAMES),
        "Kind of the store.",
        default="local",
    )
    allow_insecure: bool = setting(
        "allow_insecure",
        FLAG,
        "Listen on an address that others can reach without requiring client certificates.",
        default=False,
    )
    tls_cert_file: Path | None = setting(
        "tls.cert.file",
        PATH,
        "PEM file with the plugin's certificate and its chain; with it the plugin speaks TLS.",
        default=None,
    )
    tls_key_file: Path | None = setting(
        "tls.key.file",
        PATH,
        "PEM file with the key of that certificate.",
        default=None,
    )
    tls_client_ca_file: Path | None = setting(
        "tls.client.ca.file",
        PATH,
        "PEM file with authorities. Only clients with a certificate from one of them are "
        "accepted; without it, every client is.",
        default=None,
    )
    log_level: str = setting(
        "log_level",
        choice(*LOG_LEVELS),
        "The lowest level that is logged, as JSON lines on standard error.",
        default="info",
    )
    shared_volume: bool = setting(
        "shared.volume",
        FLAG,
        "Pass fetched ranges by path to clients that have proven that they see the store, or "
        "through scratch files of clients on the same machine.",
        default=True,
    )
    source_folders: tuple[Path, ...] | None = setting(
        "shared.source.dirs",
        _FOLDERS,
        "Folders whose files may be copied by path. Without it, any file may be while the "
        "address is private to this machine, else none.",
        default=None,
    )
    scratch_folders: tuple[Path, ...] | None = setting(
        "shared.scratch.dirs",
        _FOLDERS,
        "Folders whose scratch files (made by the client, *.rlm-scratch) may be filled with "
        "fetched ranges. Without it, any may be while the address is private to this machine, "
        "else none.",
        default=None,
    )
    spool_folder: Path | None = setting(
        "spool.dir",
        PATH,
        "Folder for copies that arrive as bytes. Without it, the store's own folder where it "
        "has one, else a private one below the system's folder for temporary files.",
        default=None,
    )
    file_threads: int = setting(
        "file.threads",
        integer(1, 256),
        "Threads for file work, which also limits the files open at once.",
        default=THREADS_DEFAULT,
    )
    copies_by_bytes_max: int = setting(
        "copies.by.bytes.max",
        integer(1, 1024),
        "Copies that may arrive as bytes at once; each takes the disk space of a segment.",
        default=SPOOLED_COPIES_DEFAULT,
    )
    sweep_grace_ms: int = setting(
        "sweep.grace.ms",
        integer(0),
        "Age from which temporary files of crashed copies are removed at start. From 2^53 on the "
        "plugin does not look for any, which needs no right to write.",
        default=SWEEP_GRACE_MS_DEFAULT,
        unit="ms",
    )
    hang_ms: int = setting(
        "loop.hang.ms",
        integer(0),
        "Time after which a plugin whose event loop stands still, as in a deadlock of a store's "
        "library, prints the stack of every thread and ends with status 1, to be started again. "
        "0 = never, such as under a debugger.",
        default=HANG_MS_DEFAULT,
        unit="ms",
    )
    # The checked rows of the kind by key; may hold secrets.
    store: Mapping[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def tls(self) -> ServerTls | None:
        """The TLS files that the plugin shows to clients; None without TLS."""
        if self.tls_cert_file is None or self.tls_key_file is None:
            return None
        return ServerTls(
            cert_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            client_ca_file=self.tls_client_ca_file,
        )

    @property
    def is_private(self) -> bool:
        """Whether only processes of this machine can call."""
        return Address.parse_listening(self.listen).is_private


SETTINGS = Table(*rows_of(PluginSettings).values())
"""The rows that every kind of store has."""


def load_settings(path: Path) -> PluginSettings:
    """Settings of a YAML file; Invalid names the file, the key and what is allowed."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise Invalid(f"{path} cannot be read: it is not UTF-8") from None
    content = read_text(text, str(path), prefix=f"{path}: ")
    try:
        return settings_of(content if content is not None else {})
    except Invalid as error:
        raise Invalid(f"{path}: {error}") from error


def settings_of(content: object) -> PluginSettings:
    """Settings of what a YAML document held; Invalid names the key and what is allowed."""
    if not isinstance(content, Mapping):
        raise Invalid("a mapping of settings is needed, key: value")
    row = SETTINGS["plugin"]
    kind = store_kind(row.default if content.get(row.key) is None else row.read(content[row.key]))
    Table(*SETTINGS, *kind.settings).refuse_unknown(content)
    common = SETTINGS.values(content)
    fields: dict[str, Any] = {
        name: common[row.key] for name, row in rows_of(PluginSettings).items()
    }
    settings = PluginSettings(
        **fields,
        store=kind.settings.values(content),
        secrets=kind.settings.secrets(content),
    )
    _check_reach(settings)
    return settings


def _check_reach(settings: PluginSettings) -> None:
    """Others may reach the plugin only if they show a certificate, unless all may."""
    require_both("tls.cert.file", settings.tls_cert_file, "tls.key.file", settings.tls_key_file)
    if settings.tls is None and settings.tls_client_ca_file is not None:
        raise Invalid("tls.client.ca.file is given without tls.cert.file and tls.key.file")
    try:
        Address.parse_listening(settings.listen).require_private(
            settings.allow_insecure or settings.tls_client_ca_file is not None
        )
    except Invalid as error:
        raise Invalid(f"listen: {error}") from error
