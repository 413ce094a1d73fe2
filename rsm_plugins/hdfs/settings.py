"""Settings of the HDFS kind, and the client configuration that they result in.

This module, not the client library, reads Hadoop's own files, so that core-site.xml and
hdfs-site.xml may be anywhere. The later source wins: the library's needs, the files, and last
`rsm.config.hdfs.conf.*`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from kip405.errors import Invalid
from kip405.settings import PATH, REQUIRED, Kind, Setting, Table, as_text, integer
from rsm_plugins.store_kinds import BLOCK_SIZE_BYTES, BLOCK_SIZE_SETTING, PREFIX_SETTING

CALL_TIMEOUT_MS_DEFAULT = 30_000
_REPLICAS_TRIED = 3
_CONF = "rsm.config.hdfs.conf."
_HA_NAMENODES = "dfs.ha.namenodes."
_VARIABLE = re.compile(r"\$\{([^}$]+)\}")
_SUBSTITUTIONS_MAX = 20


def _url(value: object) -> str:
    parts = urlsplit(as_text(value))
    if parts.scheme != "hdfs" or not parts.hostname or parts.username or parts.path.strip("/"):
        raise ValueError
    return f"hdfs://{parts.netloc}"


def _root(value: object) -> str:
    path = PurePosixPath(as_text(value))
    if not path.is_absolute() or ".." in path.parts or str(path).startswith("//"):
        raise ValueError
    return str(path)


def _conf_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else as_text(value)


URL = Setting(
    key="rsm.config.hdfs.url",
    kind=Kind(allowed="hdfs://HOST:PORT, or hdfs://NAMESERVICE of hdfs-site.xml", read=_url),
    doc="The file system. Default: fs.defaultFS of core-site.xml.",
)
ROOT = Setting(
    key="rsm.config.root",
    kind=Kind(allowed="an absolute path in HDFS", read=_root),
    doc="Folder of the store. It must exist; the plugin never creates it.",
    default=REQUIRED,
)
CORE_SITE = Setting(
    key="rsm.config.hdfs.core-site.path",
    kind=PATH,
    doc="Hadoop's core-site.xml. Default: that of HADOOP_CONF_DIR, if set.",
)
HDFS_SITE = Setting(
    key="rsm.config.hdfs.hdfs-site.path",
    kind=PATH,
    doc="Hadoop's hdfs-site.xml; names the NameNodes of a highly available HDFS. Default: that of "
    "HADOOP_CONF_DIR, if set.",
)
CONF = Setting(
    key=f"{_CONF}*",
    kind=Kind(allowed="a string, a number, true or false", read=_conf_value),
    doc="One line of Hadoop's client configuration, over the files: "
    "rsm.config.hdfs.conf.dfs.replication.",
)
USER = Setting(
    key="rsm.config.hdfs.user",
    kind=Kind(allowed="a user name", read=as_text),
    doc="User to act as where HDFS has simple authentication; sets HADOOP_USER_NAME of the "
    "process. Default: the process's user.",
)
CALL_TIMEOUT = Setting(
    key="rsm.config.hdfs.call.timeout.ms",
    kind=integer(1_000, 3_600_000),
    doc="Longest time for one call to HDFS: a call of the NameNode, 4 MiB written, 8 MiB read. A "
    "read tries another replica after a third of it.",
    default=CALL_TIMEOUT_MS_DEFAULT,
    unit="ms",
)
PRINCIPAL = Setting(
    key="rsm.config.hdfs.auth.kerberos.principal",
    kind=Kind(allowed="a principal, as in rlm/host@REALM", read=as_text),
    doc="Kerberos principal of this process; needs a keytab or a credential cache, and libgssapi.",
)
KEYTAB = Setting(
    key="rsm.config.hdfs.auth.kerberos.keytab",
    kind=PATH,
    doc="Keytab of the principal.",
)
CREDENTIALS = Setting(
    key="rsm.config.hdfs.auth.kerberos.cache",
    kind=Kind(allowed="a credential cache, as in FILE:/run/krb5/rlm.ccache", read=as_text),
    doc="Kerberos credential cache that another program keeps fresh, instead of a keytab.",
)
SETTINGS = Table(
    URL,
    ROOT,
    PREFIX_SETTING,
    BLOCK_SIZE_SETTING,
    CORE_SITE,
    HDFS_SITE,
    CONF,
    USER,
    CALL_TIMEOUT,
    PRINCIPAL,
    KEYTAB,
    CREDENTIALS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsSettings:
    """The settings of the client; `conf` is Hadoop's configuration as key and value."""

    url: str
    root: str
    prefix: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    call_timeout_ms: int = CALL_TIMEOUT_MS_DEFAULT
    user: str | None = None
    principal: str | None = None
    keytab: str | None = None
    credentials: str | None = None
    block_size_bytes: int = BLOCK_SIZE_BYTES

    @property
    def nameservice(self) -> str:
        """Host part of the URL, or the name service of a highly available HDFS. Its case is kept,
        since keys contain it.
        """
        return urlsplit(self.url).netloc.partition(":")[0]

    @property
    def namenodes(self) -> tuple[str, ...]:
        """Ids of the NameNodes of a highly available HDFS, in order; empty for a single one."""
        if urlsplit(self.url).port is not None:
            return ()
        listed = self.conf.get(f"{_HA_NAMENODES}{self.nameservice}", "")
        return tuple(part.strip() for part in listed.split(",") if part.strip())

    def number(self, key: str) -> int | None:
        """A number of Hadoop's configuration, with Hadoop's binary suffixes; None where absent."""
        value = self.conf.get(key, "").strip().lower()
        if not value:
            return None
        power = "kmgtpe".find(value[-1]) + 1
        try:
            return int(value[:-1] if power else value) << (10 * power)
        except ValueError as error:
            raise Invalid(f"{key} of Hadoop's configuration is {value!r}, no number") from error

    def client_conf(self, first: int = 0) -> dict[str, str]:
        """Configuration for the client library, NameNode number `first` (modulo) asked first.

        More fail-overs than there are other NameNodes would make the library wait between them, and
        ask on for a caller who gave up; Connection repeats what may be repeated.
        """
        nodes = self.namenodes
        conf = {
            "dfs.client.socket-timeout": str(max(1, self.call_timeout_ms // _REPLICAS_TRIED)),
            **self.conf,
            "dfs.client.failover.max.attempts": str(max(0, len(nodes) - 1)),
        }
        if self.principal is not None:
            conf["hadoop.security.authentication"] = "kerberos"
        if nodes:
            at = first % len(nodes)
            conf[f"{_HA_NAMENODES}{self.nameservice}"] = ",".join((*nodes[at:], *nodes[:at]))
            conf[f"dfs.client.failover.random.order.{self.nameservice}"] = "false"
            conf["dfs.client.failover.random.order"] = "false"
        return conf


def settings_of(values: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> HdfsSettings:
    """From checked values by full key; Invalid where no file system is named or a file is bad."""
    given = {key.removeprefix(_CONF): str(value) for key, value in values.items() if _CONF in key}
    conf = {**_site(values, CORE_SITE, environ), **_site(values, HDFS_SITE, environ), **given}
    url = values.get(URL.key) or conf.get("fs.defaultFS")
    try:
        checked_url = _url(url)
    except ValueError as error:
        raise Invalid(
            f"{URL.key} is missing, and fs.defaultFS of {CORE_SITE.key} is {url!r}; "
            f"allowed: {URL.kind.allowed}"
        ) from error
    settings = HdfsSettings(
        url=checked_url,
        root=values[ROOT.key],
        prefix=values.get(PREFIX_SETTING.key) or "",
        conf=conf,
        call_timeout_ms=values.get(CALL_TIMEOUT.key) or CALL_TIMEOUT_MS_DEFAULT,
        user=values.get(USER.key),
        principal=values.get(PRINCIPAL.key),
        keytab=None if values.get(KEYTAB.key) is None else str(values[KEYTAB.key]),
        credentials=values.get(CREDENTIALS.key),
        block_size_bytes=values.get(BLOCK_SIZE_SETTING.key) or BLOCK_SIZE_BYTES,
    )
    if urlsplit(settings.url).port is None and not settings.namenodes:
        raise Invalid(
            f"{settings.url} has no port, and {_HA_NAMENODES}{settings.nameservice} is not in "
            f"{HDFS_SITE.key}"
        )
    _check_kerberos(settings)
    return settings


def _check_kerberos(settings: HdfsSettings) -> None:
    if settings.principal is None and (settings.keytab or settings.credentials):
        raise Invalid(f"{KEYTAB.key} and {CREDENTIALS.key} need {PRINCIPAL.key}")
    if settings.principal is not None and not (settings.keytab or settings.credentials):
        raise Invalid(f"{PRINCIPAL.key} needs {KEYTAB.key} or {CREDENTIALS.key}")


def _site(values: Mapping[str, Any], row: Setting, environ: Mapping[str, str]) -> dict[str, str]:
    """Properties of the file that a row names, else of that in HADOOP_CONF_DIR, else none."""
    given: Path | None = values.get(row.key)
    if given is not None:
        return read_site(given)
    default = Path(environ.get("HADOOP_CONF_DIR", os.devnull)) / (
        "core-site.xml" if row is CORE_SITE else "hdfs-site.xml"
    )
    return read_site(default) if default.is_file() else {}


def read_site(path: Path) -> dict[str, str]:
    """Properties of a Hadoop configuration file, `${name}` of the same file put in; Invalid names
    the file.
    """
    try:
        root = ElementTree.fromstring(path.read_bytes())  # noqa: S314 - the operator's own file
    except (OSError, ElementTree.ParseError) as error:
        raise Invalid(f"cannot read Hadoop's configuration {path}: {error}") from error
    found = {
        (line.findtext("name") or "").strip(): (line.findtext("value") or "").strip()
        for line in root.iter("property")
    }
    return {key: _substituted(value, found) for key, value in found.items() if key}


def _substituted(value: str, found: Mapping[str, str]) -> str:
    for _ in range(_SUBSTITUTIONS_MAX):
        changed = _VARIABLE.sub(lambda match: found.get(match[1], match[0]), value)
        if changed == value:
            break
        value = changed
    return value
