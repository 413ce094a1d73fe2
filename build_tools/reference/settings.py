"""The tables of settings -> docs/reference/settings.md and docs/reference/plugin-settings.md."""

from collections.abc import Iterable
from typing import Any

from kip405.settings import Setting, rows_of
from rlm.config.attached import AttachedConfig
from rlm.config.draft_names import DRAFT_ROWS
from rlm.config.history import HISTORY_ROWS
from rlm.config.offload import OFFLOAD_ROWS
from rlm.config.secured import KafkaClientConfig, environment_name
from rlm.config.service import ReaderConfig, settings
from rlm.config.stores import RULE_ROWS, STORE_ROWS
from rsm_plugins.process.config import SETTINGS
from rsm_plugins.store_kinds import KIND_NAMES, store_kind

_HEAD = """\
# Settings of `rlm serve`

The service reads one YAML or .properties file with one setting a line, or that of its cluster in a
[directory](../deploy.md#a-directory-of-settings). A variable of the environment
overrides the file ([in the environment](#in-the-environment)); `rlm config check FILE` says what is
wrong with both. What changes while a service runs is taken by `rlm config reload` and by SIGHUP
([how](../operate.md#change-settings-while-a-service-runs)), everything else by a restart. Made from
`rlm/config/common.py`, `rlm/config/secured.py`,
`rlm/config/proxy_clients.py`, `rlm/config/service.py`, `rlm/config/stores.py` and
`rlm/config/offload.py`; edit there.

## In every role

A reader (`rlm serve --role reader`) has these settings and no others. It
must set `cluster.id`, `kafka.bootstrap.servers` and a store.

| key | variable | value | default | changes while running | meaning |
|---|---|---|---|---|---|
"""
_SECURED = """\

## TLS and SASL of the service's own Kafka clients

In every role, too. They have Kafka's names behind `kafka.`; files are PEM. There is no JAAS and no
GSSAPI (Kerberos). A secret is given by the setting, by a file of its own, which is better, or by
a variable in the environment.

| key | variable | value | default | changes while running | meaning |
|---|---|---|---|---|---|
"""
_BROKERS = """\

## Beside a broker

A reader with any of these settings does not start.

| key | variable | value | default | changes while running | meaning |
|---|---|---|---|---|---|
"""
_ATTACHED = """\

## `rlm attach`

An attached reader has the settings of every role but those of Kafka, and these, by which
[Kafka clients](../disaster-recovery.md#kafka-clients) read what it serves. Those of
`proxy.tls.*` and `proxy.handshake.timeout.ms` mean what they mean beside a broker.

| key | variable | value | default | changes while running | meaning |
|---|---|---|---|---|---|
"""
_ONLY_ATTACHED = ("proxy_listen", "proxy_advertised", "proxy_tls_client_auth")
_STORES = """\

## A store

These settings are at the top level for a single store, `default`, or below `stores.NAME` for each
of several. Set exactly one of `plugin`, `plugin.command` and `plugin.address`. A name permanently
stands for one store in the whole cluster: another store needs a new name, and the old one must stay
as long as segments lie there.

```yaml
stores:
  hot: {plugin: s3, rsm.config.s3.bucket.name: events, rsm.config.s3.region: eu-central-1}
  cold: {plugin.address: "unix:/run/rsm-hdfs.sock"}
storage.endpoint.rules:
  - {topics: 'audit\\..*', store: cold, prefix.entropy.bits: 5}
```

| key | variable | value | default | changes while running | meaning |
|---|---|---|---|---|---|
"""
_KIND = """\
| `rsm.config.*` | `RLM_RSM_CONFIG_*` | plain values | none | As in the plugin's own file \
([plugin settings](plugin-settings.md)). \
For a plugin that runs by itself only `rsm.config.prefix` is recorded. |
"""
_ENVIRONMENT = """\

## In the environment

The variable of a setting is RLM_ and the key in capitals, with _ for each dot and hyphen:
`proxy.listen` is `RLM_PROXY_LISTEN`. `rlm serve` and the commands that take `--config` read it.

- It wins over the file. A secret wins over the `.file` that has it, and such a file over the
  secret. An empty variable counts as none. At its start a service logs the names of the
  variables that it takes (`settings_of_environment`).
- Texts are written as they are. Numbers, `true` and `false`, lists and mappings are YAML:
  `RLM_STORAGE_ENDPOINT_RULES='[{topics: "audit.*", store: cold}]'`. Lists of addresses and of
  paths may have commas instead.
- The variables of a store are for a single one. Where the file has `stores`, `RLM_STORES`
  replaces all of them.
- A variable that looks like one of a setting and is none is refused, with the nearest name.
  `RLM_ADDRESS`, `RLM_TOKEN_FILE`, `RLM_TLS_*` and `RLM_SANDBOX` are of [commands](commands.md);
  `RLM_PRINCIPAL` is the principal of calls in commands and in services. What Kubernetes makes of
  a Service named rlm is passed over; of a variable such as RLM_PORT that is a value like
  `tcp://10.0.0.11:80`.
- The value of a secret is in no log and no message. Neither plugins nor proxy workers get the
  variable of any setting.
"""
_DRAFT = """\

## Names of the first draft of KIP-405

A service beside a broker takes these names too, in its file and as variables. At its start it logs
a line for each (`setting_by_draft_name`), and `rlm config check` shows them. A setting that has
another value by its name of today is refused; a variable overrides the file, whichever name either
has. Made from `rlm/config/draft_names.py`; edit there.

| name in that draft | variable | value | today |
|---|---|---|---|
"""
_RULES = """\

## A rule of `storage.endpoint.rules`

| key | value | default | meaning |
|---|---|---|---|
"""
_OFFLOAD = """\

## A rule of `offload.rules`

A rule sets one threshold or more. Where it sets only one of the two copy lags, the other one is as
local retention.

```yaml
offload.rules:
  - {topics: 'logs\\..*', remote.copy.lag.bytes: 10737418240, offload.deletion.lag.ms: 14400000}
```

| key | value | default | meaning |
|---|---|---|---|
"""
_HISTORY = """\

## A rule of `proxy.history.rules`

A rule has either `principals` or `client.ids`.

```yaml
proxy.history: 7d
proxy.history.rules:
  - {principals: 'audit|etl-.*', history: full}
  - {client.ids: 'dashboard-.*', history: local}
```

| key | value | default | meaning |
|---|---|---|---|
"""


_PLUGIN_HEAD = (
    "# Settings of `rsm-plugin serve`\n\n"
    "The plugin reads one YAML file with one setting a line. Made from "
    "`rsm_plugins/process/config.py` and the settings of each kind of store; edit there.\n"
)
_TABLE_HEAD = "| key | value | default | meaning |\n|---|---|---|---|\n"


def generate_service_docs() -> str:
    """docs/reference/settings.md, whole."""
    secured, in_every_role = rows_of(KafkaClientConfig), settings(ReaderConfig)
    common = (row for name, row in in_every_role.items() if name not in secured)
    beside = (row for name, row in settings().items() if name not in in_every_role)
    rows = _rows(common) + _SECURED + _rows(secured.values()) + _BROKERS + _rows(beside)
    attached = settings(AttachedConfig)
    rows += _ATTACHED + _rows(attached[name] for name in _ONLY_ATTACHED)
    store = _STORES + _rows(STORE_ROWS) + _KIND
    rules = _RULES + _parts(RULE_ROWS) + _OFFLOAD + _parts(OFFLOAD_ROWS)
    rules += _HISTORY + _parts(HISTORY_ROWS)
    drafts = (
        f"| `{row.key}` | `{environment_name(row.key)}` | {row.allowed} | {row.doc} |\n"
        for row in DRAFT_ROWS
    )
    return _HEAD + rows + store + rules + _ENVIRONMENT + _DRAFT + "".join(drafts)


def generate_plugin_docs() -> str:
    """docs/reference/plugin-settings.md, whole."""
    tables = {"## Every plugin": SETTINGS}
    tables |= {f"## `plugin: {name}`": store_kind(name).settings for name in KIND_NAMES}
    sections = (f"\n{head}\n\n{_TABLE_HEAD}{_parts(rows)}" for head, rows in tables.items())
    return _PLUGIN_HEAD + "".join(sections)


def _rows(rows: Iterable[Setting]) -> str:
    """Settings, each with its variable."""
    return "".join(
        f"| `{row.key}` | `{environment_name(row.key)}` | {row.allowed} | {_default(row)} | "
        f"{'yes' if row.changes_while_running else 'no'} | {_doc(row)} |\n"
        for row in rows
    )


def _parts(rows: Iterable[Setting]) -> str:
    """What has no variable: parts of a setting, and the settings of a plugin by itself."""
    return "".join(
        f"| `{row.key}` | {row.allowed} | {_default(row)} | {_doc(row)} |\n" for row in rows
    )


def _doc(row: Setting) -> str:
    return f"{row.doc} Secret: never shown." if row.secret else row.doc


def _default(row: Setting) -> str:
    if row.default_doc:
        return row.default_doc
    return "required" if row.is_required else _shown(row.default)


def _shown(value: Any) -> str:
    if value in (None, ""):
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
