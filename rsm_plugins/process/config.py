"""The settings of `rsm-plugin serve`: one YAML file. Refusals name the key and what is allowed.

The rows common to every plugin are here; the file names a kind of store, which adds its own rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kip405.addresses import Address
from kip405.errors import Invalid
from rsm_plugins.contract.tls import ServerTls, require_both
from rsm_plugins.files.spool import SPOOLED_COPIES_DEFAULT
from rsm_plugins.settings.kinds import KIND_NAMES, store_kind
from rsm_plugins.settings.table import (
    Setting,
    checked_value,
    checked_values,
    flag,
    folder,
    folders,
    listen_address,
    number,
    one_of,
    refuse_unknown,
    secret_values,
)
from rsm_plugins.threads import THREADS_DEFAULT

SWEEP_GRACE_MS_DEFAULT = 3_600_000
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The settings of a plugin; SETTINGS has the meaning of each."""

    listen: str
    kind: str
    allow_insecure: bool
    tls_cert_file: Path | None
    tls_key_file: Path | None
    tls_client_ca_file: Path | None
    log_level: str
    shared_volume: bool
    source_folders: tuple[Path, ...] | None
    scratch_folders: tuple[Path, ...] | None
    spool_folder: Path | None
    file_threads: int
    copies_by_bytes_max: int
    sweep_grace_ms: int
    # The checked rows of the kind by full key; may hold secrets.
    store: Mapping[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def tls(self) -> ServerTls | None:
        """What the plugin shows to clients, None where it speaks plainly."""
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


SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="listen",
        field="listen",
        check=listen_address,
        allowed="127.0.0.1:PORT (0 takes a free one) or unix:/short/path",
        doc="Address at which the plugin listens.",
        required=True,
    ),
    Setting(
        key="plugin",
        field="kind",
        check=one_of(KIND_NAMES),
        allowed=" | ".join(KIND_NAMES),
        doc="Kind of the store.",
        default="local",
    ),
    Setting(
        key="allow_insecure",
        field="allow_insecure",
        check=flag,
        allowed="true | false",
        doc="Listen on an address that others can reach without requiring client certificates.",
        default=False,
    ),
    Setting(
        key="tls.cert.file",
        field="tls_cert_file",
        check=folder,
        allowed="an absolute path",
        doc="PEM file with the plugin's certificate and its chain; with it the plugin speaks TLS.",
    ),
    Setting(
        key="tls.key.file",
        field="tls_key_file",
        check=folder,
        allowed="an absolute path",
        doc="PEM file with the key of that certificate.",
    ),
    Setting(
        key="tls.client.ca.file",
        field="tls_client_ca_file",
        check=folder,
        allowed="an absolute path",
        doc="PEM file with authorities. Only clients with a certificate from one of them are "
        "accepted; without it, every client is.",
    ),
    Setting(
        key="log_level",
        field="log_level",
        check=one_of(LOG_LEVELS),
        allowed=" | ".join(LOG_LEVELS),
        doc="The lowest level that is logged, as JSON lines on standard error.",
        default="info",
    ),
    Setting(
        key="shared.volume",
        field="shared_volume",
        check=flag,
        allowed="true | false",
        doc="Pass fetched ranges by path to clients that have proven that they see the store, or "
        "through scratch files of clients on the same machine.",
        default=True,
    ),
    Setting(
        key="shared.source.dirs",
        field="source_folders",
        check=folders,
        allowed="a list of absolute paths",
        doc="Folders whose files may be copied by path. Without it, any file may be while the "
        "address is private to this machine, else none.",
    ),
    Setting(
        key="shared.scratch.dirs",
        field="scratch_folders",
        check=folders,
        allowed="a list of absolute paths",
        doc="Folders whose scratch files (made by the client, *.rlm-scratch) may be filled with "
        "fetched ranges. Without it, any may be while the address is private to this machine, "
        "else none.",
    ),
    Setting(
        key="spool.dir",
        field="spool_folder",
        check=folder,
        allowed="an absolute path",
        doc="Folder for copies that arrive as bytes. Without it, the store's own folder where it "
        "has one, else a private one below the system's folder for temporary files.",
    ),
    Setting(
        key="file.threads",
        field="file_threads",
        check=number(1, 256),
        allowed="1 to 256",
        doc="Threads for file work, which also limits the files open at once.",
        default=THREADS_DEFAULT,
    ),
    Setting(
        key="copies.by.bytes.max",
        field="copies_by_bytes_max",
        check=number(1, 1024),
        allowed="1 to 1024",
        doc="Copies that may arrive as bytes at once; each takes the disk space of a segment.",
        default=SPOOLED_COPIES_DEFAULT,
    ),
    Setting(
        key="sweep.grace.ms",
        field="sweep_grace_ms",
        check=number(0, 2**53),
        allowed="0 or more milliseconds",
        doc="Age from which temporary files of crashed copies are removed at start.",
        default=SWEEP_GRACE_MS_DEFAULT,
    ),
)

_KIND_ROW = next(row for row in SETTINGS if row.field == "kind")


def load_settings(path: Path) -> PluginSettings:
    """Settings of a YAML file; Invalid names the file, the key and what is allowed."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is no YAML: {yaml_fault(error)}") from None
    try:
        return settings_of(content if content is not None else {})
    except Invalid as error:
        raise Invalid(f"{path}: {error}") from error


def yaml_fault(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    """What is wrong and where, without the text around it, which may be a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {type(error).__name__}"
    return type(error).__name__


def settings_of(content: object) -> PluginSettings:
    """Settings of what a YAML document held; Invalid names the key and what is allowed."""
    if not isinstance(content, Mapping):
        raise Invalid("a mapping of settings is needed, key: value")
    kind = store_kind(str(checked_value(_KIND_ROW, content.get(_KIND_ROW.key))))
    refuse_unknown(content, (*SETTINGS, *kind.settings))
    fields: dict[str, Any] = {
        row.field: checked_value(row, content.get(row.key)) for row in SETTINGS
    }
    settings = PluginSettings(
        **fields,
        store=checked_values(content, kind.settings),
        secrets=secret_values(content, kind.settings),
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
