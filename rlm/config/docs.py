"""Writes docs/reference/settings.md from the tables of settings."""

from typing import Any

from rlm.config.service import ReaderConfig, settings
from rlm.config.stores import RULE_ROWS, STORE_ROWS
from rlm.config.values import NOT_YET, REQUIRED, Setting

_HEAD = """\
# Settings of `rlm serve`

The service reads one YAML file with one setting a line. Made from
`rlm/config/service.py` and `rlm/config/stores.py`; edit there.

## In every role

A reader (`rlm serve --role reader`) has these settings and no others. It
must set `cluster.id`, `kafka.bootstrap.servers` and a store.

| key | value | default | meaning |
|---|---|---|---|
"""
_BROKERS = """\

## Beside a broker

A reader with any of these settings does not start.

| key | value | default | meaning |
|---|---|---|---|
"""
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

| key | value | default | meaning |
|---|---|---|---|
"""
_KIND = """\
| `rsm.config.*` | plain values | none | As in the plugin's own file \
([plugin settings](plugin-settings.md)). \
For a plugin that runs by itself only `rsm.config.prefix` is recorded. |
"""
_RULES = """\

## A rule of `storage.endpoint.rules`

| key | value | default | meaning |
|---|---|---|---|
"""
_TAIL = """\

## Not yet supported

The service refuses these settings by name. Those marked `(secret)` are never shown or logged:

| key | meaning |
|---|---|
"""


def generate_docs() -> str:
    """docs/reference/settings.md, whole."""
    in_every_role = settings(ReaderConfig)
    rows = "".join(_row(row) for row in in_every_role.values())
    beside = (row for name, row in settings().items() if name not in in_every_role)
    rows += _BROKERS + "".join(_row(row) for row in beside)
    store = _STORES + "".join(_row(row) for row in STORE_ROWS) + _KIND
    rules = _RULES + "".join(_row(row) for row in RULE_ROWS)
    return _HEAD + rows + store + rules + _TAIL + "".join(_later(row) for row in NOT_YET)


def _row(row: Setting) -> str:
    unit = f" ({row.unit})" if row.unit else ""
    return f"| `{row.key}` | {row.kind.allowed}{unit} | {_default(row)} | {row.doc} |\n"


def _later(row: Setting) -> str:
    return f"| `{row.key}` | {row.doc}{' (secret)' if row.secret else ''} |\n"


def _default(row: Setting) -> str:
    if row.default_doc:
        return row.default_doc
    if row.default is REQUIRED:
        return "required"
    return _shown(row.default)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
