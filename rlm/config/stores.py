"""Settings of stores and of the rules that choose a store: rows, checks, and what may be shown.

A single store is configured at the top level and is called `default`; several stores are configured
by name under `stores`. In both cases a store is the plugin that serves it: the service starts the
plugin (`plugin` or `plugin.command`, with `rsm.config.*`), or it already runs (`plugin.address`).
Pure, except that it imports the kind of store that is named.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kip405.addresses import Address
from kip405.errors import Invalid
from kip405.segments import Layout
from kip405.settings import (
    ADDRESS,
    MASK,
    PATH,
    REQUIRED,
    TEXT,
    WORDS,
    Kind,
    Setting,
    Table,
    choice,
    integer,
    is_secret_name,
)
from rsm_plugins.contract.tls import Tls
from rsm_plugins.endpoints import (
    ENTROPY_BITS_KEY,
    LAYOUT_KEY,
    EndpointProvider,
    EndpointStore,
    RuleProvider,
    TopicRule,
    load_provider,
    location_of,
)
from rsm_plugins.layout.keys import ENTROPY_BITS_MAX
from rsm_plugins.store_kinds import KIND_NAMES, PREFIX_SETTING, kind_settings

DEFAULT_STORE = "default"
RSM_PREFIX = "rsm.config."
PREFIX_KEY = "rsm.config.prefix"
NAME_ALLOWED = "1 to 60 characters of a-z A-Z 0-9 . _ -"
_PART_SIZE = f"{RSM_PREFIX}s3.multipart.upload.part.size"
_NAME_MAX = 60
_NAME_SIGNS = frozenset("._-")

Scalar = str | int | float | bool


def _row(key: str, kind: Kind, doc: str, *, default: Any = None) -> Setting:
    return Setting(key=key, kind=kind, default=default, doc=doc)


STORE_ROWS = Table(
    _row("plugin", choice(*KIND_NAMES), "Kind of the store. The service starts its plugin."),
    _row(
        "plugin.command",
        WORDS,
        "Instead of `plugin`: command line of a plugin of your own. The service starts it and "
        "adds `--config FILE`.",
    ),
    _row(
        "plugin.address",
        ADDRESS,
        "Instead of `plugin`: address of a plugin that runs by itself.",
    ),
    _row(
        "plugin.tls.ca.file",
        PATH,
        "PEM file with the authorities of that plugin's certificate. With it the service "
        "speaks TLS.",
    ),
    _row(
        "plugin.tls.cert.file",
        PATH,
        "PEM file with the certificate that the service shows to that plugin.",
    ),
    _row("plugin.tls.key.file", PATH, "PEM file with the key of that certificate."),
    _row(
        "plugin.tls.server.name",
        TEXT,
        "Name in that plugin's certificate, if it is not the plugin's host.",
    ),
    _row(
        ENTROPY_BITS_KEY,
        integer(0, ENTROPY_BITS_MAX),
        "How many binary digits of MD5 over cluster, topic and partition precede the object "
        "names of new segments. Beside `stores` it applies to all of them.",
    ),
    _row(
        LAYOUT_KEY,
        choice(*map(str, Layout)),
        "How the objects of new segments are written (docs/stores.md). A topic's own choice "
        "(`rlm topics enable --layout`) comes first. Beside `stores` it applies to all of them. "
        "Default: kafka.",
    ),
)
"""Rows of one store; `rsm.config.*` of its kind come on top."""

RULE_ROWS = Table(
    _row(
        "topics",
        TEXT,
        "Regular expression that must match the whole name of the topic.",
        default=REQUIRED,
    ),
    _row(
        "store",
        TEXT,
        "Name of the store to which new segments of such topics go.",
        default=REQUIRED,
    ),
    _row("prefix.entropy.bits", integer(0, ENTROPY_BITS_MAX), "Overrides that of the store."),
    _row(LAYOUT_KEY, choice(*map(str, Layout)), "Overrides that of the store."),
)
"""Rows of one rule of `storage.endpoint.rules`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """One store; exactly one of `kind`, `command` and `address` is set.

    `config` holds the `rsm.config.*` values by full key, secrets included; `secrets` the keys of
    those. `where` is the beginning of its keys in the file.
    """

    name: str
    kind: str = ""
    command: tuple[str, ...] = ()
    address: Address | None = None
    tls: Tls | None = None
    entropy_bits: int = 0
    layout: Layout = Layout.KAFKA
    config: Mapping[str, Scalar] = field(default_factory=dict, repr=False)
    secrets: frozenset[str] = frozenset()
    where: str = ""

    @property
    def prefix(self) -> str:
        return str(self.config.get(PREFIX_KEY, ""))

    @property
    def part_bytes(self) -> int | None:
        """The size of the parts in which the store takes a log that is larger; None = it takes each
        object at once, as far as is known.
        """
        row = kind_settings(self.kind).row(_PART_SIZE) if self.kind else None
        return None if row is None else int(self.config.get(row.key, row.default))

    @property
    def endpoint_store(self) -> EndpointStore:
        """The store for endpoint providers; a plugin of unknown kind is named by its address."""
        known = location_of(self.kind, self.config)
        return EndpointStore(
            name=self.name,
            plugin=self.kind,
            location=known or (str(self.address) if self.address else " ".join(self.command)),
            prefix=self.prefix,
            entropy_bits=self.entropy_bits,
            layout=self.layout,
        )

    def shown(self) -> dict[str, str]:
        """Its settings by key, fit for a log: what may be a secret is not shown."""
        rows: dict[str, object] = {
            "plugin": self.kind,
            "plugin.command": " ".join(self.command),
            "plugin.address": self.address,
            "plugin.tls.ca.file": self.tls.ca_file if self.tls else None,
            ENTROPY_BITS_KEY: self.entropy_bits or None,
            LAYOUT_KEY: None if self.layout is Layout.KAFKA else self.layout,
            **{key: self._masked(key) for key in self.config},
        }
        return {f"{self.where}{key}": str(value) for key, value in rows.items() if value}

    def _masked(self, key: str) -> str:
        # A path of a key file is not secret, but nothing is lost where it is not shown.
        is_secret = key in self.secrets or is_secret_name(key) or "key" in key.lower()
        return MASK if is_secret else str(self.config[key])


def is_store_key(key: str) -> bool:
    """Whether a key of the top level describes the store `default`."""
    return key.startswith(RSM_PREFIX) or STORE_ROWS.row(key) is not None


def read_stores(given: Mapping[str, Any]) -> tuple[StoreConfig, ...]:
    """The stores of a file's content; none is allowed: then nothing is tiered. Invalid."""
    top = {key: value for key, value in given.items() if is_store_key(key)}
    defaults = {key: top[key] for key in (ENTROPY_BITS_KEY, LAYOUT_KEY) if key in top}
    STORE_ROWS.given(defaults)  # refused by the key that is in the file, not by that of a store
    if "stores" not in given:
        if defaults and len(top) == len(defaults):
            raise Invalid(f"{next(iter(defaults))}: there is no store: give `plugin` or `stores`")
        return (_read_store(DEFAULT_STORE, top, ""),) if top else ()
    for key in (one for one in top if one not in defaults):
        raise Invalid(f"{key}: with `stores` it belongs to one of them: stores.NAME.{key}")
    content = given["stores"]
    if not isinstance(content, dict):
        raise Invalid(f"stores: must be {STORES_ALLOWED}, got {_shape(content)}")
    for one in (one for one in content.values() if not isinstance(one, dict)):
        raise Invalid(f"stores: must be {STORES_ALLOWED}, got a name with {_shape(one)}")
    found = tuple(
        _read_store(_checked_name(name), defaults | one, f"stores.{name}.")
        for name, one in content.items()
    )
    _refuse_same_location(found)
    return found


STORES_ALLOWED = "a mapping of names to settings of a store"
RULES_ALLOWED = "a list of rules like {topics: 'audit.*', store: cold}"


def read_rules(content: Any, stores: Iterable[StoreConfig]) -> tuple[TopicRule, ...]:
    """`storage.endpoint.rules`, checked against the stores there are. Invalid."""
    rules = rules_of("storage.endpoint.rules", content, RULES_ALLOWED)
    endpoint_stores = tuple(one.endpoint_store for one in stores)
    return tuple(_read_rule(rule, where, endpoint_stores) for rule, where in rules)


def rules_of(key: str, content: Any, allowed: str) -> list[tuple[dict[str, Any], str]]:
    """The rules of a setting that is a list of mappings, each with what its keys begin with in
    errors. Invalid names the setting.
    """
    if not isinstance(content, list) or not all(isinstance(rule, dict) for rule in content):
        raise Invalid(f"{key}: must be {allowed}, got {_shape(content)}")
    return [(rule, f"{key}[{number}].") for number, rule in enumerate(content)]


def build_provider(
    stores: Iterable[StoreConfig], rules: Iterable[TopicRule], class_path: str | None
) -> EndpointProvider:
    """The provider that the configuration asks for; Invalid where its class cannot be used."""
    endpoint_stores = tuple(one.endpoint_store for one in stores)
    return (
        load_provider(class_path, endpoint_stores)
        if class_path
        else RuleProvider(endpoint_stores, tuple(rules))
    )


def _read_rule(
    given: dict[str, Any], where: str, endpoint_stores: tuple[EndpointStore, ...]
) -> TopicRule:
    RULE_ROWS.refuse_unknown(given, where)
    values = RULE_ROWS.values(given, where)
    rule = TopicRule(
        topics=values["topics"],
        store=values["store"],
        entropy_bits=values["prefix.entropy.bits"],
        layout=None if values[LAYOUT_KEY] is None else Layout.parse(values[LAYOUT_KEY]),
    )
    is_known = rule.store in {one.name for one in endpoint_stores}
    try:
        RuleProvider(endpoint_stores, (rule,))
    except Invalid as error:
        raise Invalid(f"{where}{'topics' if is_known else 'store'}: {error}") from error
    return rule


def _read_store(name: str, given: Mapping[str, Any], where: str) -> StoreConfig:
    given = {key: value for key, value in given.items() if value is not None}
    STORE_ROWS.refuse_unknown((key for key in given if not key.startswith(RSM_PREFIX)), where)
    values = STORE_ROWS.given(given, where)
    _one_way(values, where)
    address, kind = values.get("plugin.address"), values.get("plugin", "")
    config = {key: value for key, value in given.items() if key.startswith(RSM_PREFIX)}
    config.pop(ENTROPY_BITS_KEY, None)
    store = StoreConfig(
        name=name,
        kind=kind,
        command=values.get("plugin.command", ()),
        address=address,
        tls=_tls(values, address, where),
        entropy_bits=values.get(ENTROPY_BITS_KEY, 0),
        layout=Layout.parse(values.get(LAYOUT_KEY, str(Layout.KAFKA))),
        config=config,
        where=where,
    )
    return _checked_config(store)


def _checked_config(store: StoreConfig) -> StoreConfig:
    """The values against the rows of the kind; of others only the shape and the prefix."""
    if store.kind:
        rows = kind_settings(store.kind)
        rows.refuse_unknown(store.config, store.where)
        checked = rows.values(store.config, store.where)
        paths = {key: str(one) for key, one in checked.items() if isinstance(one, Path)}
        secrets = (key for key in store.config if rows[key].secret)
        # One path has many spellings, and stores are told apart by it.
        return replace(store, config={**store.config, **paths}, secrets=frozenset(secrets))
    for key, value in store.config.items():
        if not isinstance(value, str | int | float | bool):
            raise Invalid(f"{store.where}{key}: must be a plain value, got {_shape(value)}")
    if PREFIX_KEY in store.config:
        PREFIX_SETTING.read(store.prefix, f"{store.where}{PREFIX_KEY}")
    return store


def _one_way(values: Mapping[str, Any], where: str) -> None:
    ways = [key for key in ("plugin", "plugin.command", "plugin.address") if key in values]
    if len(ways) != 1:
        found = f"there are {' and '.join(ways)}" if ways else "there is none"
        raise Invalid(
            f"{where}plugin: a store has exactly one of plugin, plugin.command and "
            f"plugin.address; {found}"
        )


def _tls(values: Mapping[str, Any], address: Address | None, where: str) -> Tls | None:
    given = [key for key in values if key.startswith("plugin.tls.")]
    if not given:
        return None
    if address is None or address.is_unix:
        raise Invalid(f"{where}{given[0]}: TLS goes with a plugin.address of host:port")
    pair = ("plugin.tls.cert.file", "plugin.tls.key.file")
    if (pair[0] in values) != (pair[1] in values):
        missing = next(key for key in pair if key not in values)
        raise Invalid(f"{where}{missing}: missing; a certificate and its key go together")
    return Tls(
        ca_file=values.get("plugin.tls.ca.file"),
        cert_file=values.get(pair[0]),
        key_file=values.get(pair[1]),
        server_name=values.get("plugin.tls.server.name", ""),
    )


def _refuse_same_location(stores: Iterable[StoreConfig]) -> None:
    seen: dict[tuple[object, ...], str] = {}
    for store in stores:
        location = store.endpoint_store.location
        key: tuple[object, ...] = (store.kind, location, store.prefix if store.kind else "")
        if store.command:  # only such a plugin knows where it keeps objects
            key = (*key, *sorted(store.config.items()))
        if key in seen:
            shown = f"{location} with prefix {store.prefix!r}" if store.kind else location
            raise Invalid(
                f"stores.{store.name}: it is where store {seen[key]} is ({shown}); "
                "give each a bucket, root or prefix of its own"
            )
        seen[key] = store.name


def _checked_name(name: object) -> str:
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _NAME_MAX
        or not all((sign.isascii() and sign.isalnum()) or sign in _NAME_SIGNS for sign in name)
    ):
        raise Invalid(f"stores: a name must be {NAME_ALLOWED}, got {name!r}")
    return name


def _shape(content: object) -> str:
    """The shape of a value without its content: a secret, also as the key of a mapping, which is
    what YAML takes a secret in braces for.
    """
    if isinstance(content, dict):
        return "a mapping"
    return f"a list of {len(content)}" if isinstance(content, list) else f"a {_type_of(content)}"


def _type_of(content: object) -> str:
    return {"str": "text", "int": "number", "float": "number", "bool": "flag"}.get(
        type(content).__name__, type(content).__name__
    )
