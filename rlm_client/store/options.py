"""The arguments that say which stores the consumer reads itself, and which of them for a topic.

A store is described by the same keys as in the file of `rsm-plugin serve`: `plugin` and its
`rsm.config.*` settings. Values may be secret: no error and no text of an object here has one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kip405.errors import Invalid
from kip405.settings import Table
from rsm_plugins.endpoints import (
    EndpointProvider,
    EndpointStore,
    RuleProvider,
    TopicRule,
    load_provider,
    location_of,
)
from rsm_plugins.store_kinds import PREFIX_SETTING, StoreKind, store_kind

AHEAD_BYTES: Final = 32 << 20
MEMORY_BYTES: Final = 128 << 20
CALL_TIMEOUT_MS: Final = 30_000
_PLUGIN: Final = "plugin"
_DEFAULT: Final = "default"
_RULE_KEYS: Final = frozenset({"topics", "store"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """One store: its name for rules and providers, its kind, and the kind's checked values."""

    name: str
    kind: StoreKind
    values: Mapping[str, Any] = field(repr=False)

    @property
    def endpoint_store(self) -> EndpointStore:
        return EndpointStore(
            name=self.name,
            plugin=self.kind.name,
            location=location_of(self.kind.name, self.values),
            prefix=str(self.values[PREFIX_SETTING.key]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """`ahead_bytes` are read ahead for a partition, `memory_bytes` for all of a consumer. A store
    that does not answer for `call_timeout_ms` is taken for unavailable.
    """

    stores: tuple[StoreSettings, ...]
    provider: EndpointProvider
    ahead_bytes: int = AHEAD_BYTES
    memory_bytes: int = MEMORY_BYTES
    call_timeout_ms: int = CALL_TIMEOUT_MS


def store_options(
    stores: Mapping[str, Any] | None = None,
    *,
    store_rules: Sequence[Mapping[str, str]] = (),
    store_provider: str | None = None,
    store_ahead_bytes: int = AHEAD_BYTES,
    store_memory_bytes: int = MEMORY_BYTES,
    store_call_timeout_ms: int = CALL_TIMEOUT_MS,
) -> StoreOptions:
    """`stores`: the settings of one store, or those of several by name. ValueError names the
    argument and the key that cannot be used.
    """
    if not stores:
        raise ValueError("remote_reads='store' needs rlm_stores: the settings of a store")
    if min(store_ahead_bytes, store_memory_bytes, store_call_timeout_ms) <= 0:
        raise ValueError("rlm_store_ahead_bytes, _memory_bytes and _call_timeout_ms: above 0")
    named = {_DEFAULT: stores} if _PLUGIN in stores else stores
    try:
        opened = tuple(_settings(name, given) for name, given in named.items())
        return StoreOptions(
            stores=opened,
            provider=_provider(opened, store_rules, store_provider),
            ahead_bytes=store_ahead_bytes,
            memory_bytes=store_memory_bytes,
            call_timeout_ms=store_call_timeout_ms,
        )
    except Invalid as error:
        raise ValueError(f"rlm_stores: {error}") from error


def _settings(name: str, given: object) -> StoreSettings:
    if not isinstance(given, Mapping) or not isinstance(given.get(_PLUGIN), str):
        raise Invalid(f"store {name!r} needs a mapping with plugin and its rsm.config.* settings")
    kind = store_kind(given[_PLUGIN])
    values = {key: value for key, value in given.items() if key != _PLUGIN}
    table = Table(*kind.settings)
    table.refuse_unknown(values)
    return StoreSettings(name=name, kind=kind, values=table.values(values))


def _provider(
    stores: Sequence[StoreSettings], rules: Sequence[Mapping[str, str]], class_path: str | None
) -> EndpointProvider:
    endpoints = [one.endpoint_store for one in stores]
    if class_path is not None:
        if rules:
            raise Invalid("give rlm_store_rules or rlm_store_provider, not both")
        return load_provider(class_path, endpoints)
    for rule in rules:
        if set(rule) != _RULE_KEYS:
            raise Invalid(f"a rule has {', '.join(sorted(_RULE_KEYS))}, not {', '.join(rule)}")
    return RuleProvider(
        endpoints, [TopicRule(topics=one["topics"], store=one["store"]) for one in rules]
    )
