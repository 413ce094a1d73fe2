"""Decides to which store a partition's segments go: the storage endpoint provider.

The provider is a pure function of cluster, topic and partition. Copy, fetch, checks and readers
without a service all ask the same provider. It decides where new segments go; the location of an
old segment is recorded with the segment (store uuid, entropy bits), so that no segment becomes
unreachable when a rule changes. Pinterest's StorageServiceEndpointProvider is the model.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from kip405.errors import Invalid
from kip405.ids import TopicIdPartition
from kip405.segments import Layout
from rsm_plugins.layout.keys import ENTROPY_BITS_MAX, partition_folder, with_prefix

ENTROPY_BITS_KEY = "rsm.config.prefix.entropy.bits"
LAYOUT_KEY = "storage.layout"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStore:
    """A store that endpoints may name; `entropy_bits` and `layout` apply where no rule says
    otherwise.
    """

    name: str
    plugin: str
    location: str
    prefix: str = ""
    entropy_bits: int = 0
    layout: Layout = Layout.KAFKA


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageEndpoint:
    """Where the segments of a partition go: the plugin, bucket or root, prefix, entropy bits; and
    the layout of their objects there.
    """

    store: str
    plugin: str
    location: str
    prefix: str = ""
    entropy_bits: int = 0
    layout: Layout = Layout.KAFKA

    def __post_init__(self) -> None:
        if not 0 <= self.entropy_bits <= ENTROPY_BITS_MAX:
            raise Invalid(f"prefix entropy of {self.entropy_bits} bits is not in 0..32")

    def folder(self, cluster_id: str, partition: TopicIdPartition) -> str:
        """The key that all objects of the partition begin with, without trailing slash."""
        name = partition_folder(cluster_id, partition, self.entropy_bits)
        return with_prefix(self.prefix, name)


class EndpointProvider(Protocol):
    """Pure and fast: the same settings give the same answer at any time and in any process.

    A user's own class is created as `Class(stores={name: EndpointStore})`.
    """

    def endpoint(self, cluster_id: str, topic: str, partition: int) -> StorageEndpoint:
        """Where the partition's next segment goes; `store` is a configured one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRule:
    """Topics whose whole name matches the pattern go to a store; None = the store's own bits, or
    its own layout.
    """

    topics: str
    store: str
    entropy_bits: int | None = None
    layout: Layout | None = None


class RuleProvider:
    """The first rule whose pattern matches decides; without one, the first store."""

    def __init__(self, stores: Sequence[EndpointStore], rules: Sequence[TopicRule] = ()) -> None:
        """Invalid for a pattern that is not valid and for an unknown store."""
        self._stores = {store.name: store for store in stores}
        self._first = next(iter(stores), None)
        self._rules = [(topic_pattern(rule.topics), self._checked(rule)) for rule in rules]

    def endpoint(self, cluster_id: str, topic: str, partition: int) -> StorageEndpoint:
        """See EndpointProvider; Invalid without any store."""
        for pattern, rule in self._rules:
            if pattern.fullmatch(topic):
                return endpoint_in(self._stores[rule.store], rule.entropy_bits, rule.layout)
        if self._first is None:
            raise Invalid("no store is configured")
        return endpoint_in(self._first)

    def _checked(self, rule: TopicRule) -> TopicRule:
        if rule.store not in self._stores:
            raise Invalid(f"there is no store {rule.store!r}, but {', '.join(self._stores)}")
        return rule


def endpoint_in(
    store: EndpointStore, entropy_bits: int | None = None, layout: Layout | None = None
) -> StorageEndpoint:
    """The endpoint in a store, with its own entropy bits and layout unless others are given."""
    return StorageEndpoint(
        store=store.name,
        plugin=store.plugin,
        location=store.location,
        prefix=store.prefix,
        entropy_bits=store.entropy_bits if entropy_bits is None else entropy_bits,
        layout=store.layout if layout is None else layout,
    )


class CheckedProvider:
    """A user's own provider, whose answers are checked against the configured stores.

    Segments go where the store's plugin puts them; a reader without a service uses the endpoint:
    both must be the same location.
    """

    def __init__(self, provider: EndpointProvider, stores: Sequence[EndpointStore]) -> None:
        self._provider = provider
        self._stores = {one.name: one for one in stores}

    def endpoint(self, cluster_id: str, topic: str, partition: int) -> StorageEndpoint:
        """See EndpointProvider; Invalid for an endpoint in none of the stores."""
        try:
            found = self._provider.endpoint(cluster_id, topic, partition)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise Invalid(
                f"the provider has no endpoint for {topic}-{partition}: {error}"
            ) from error
        if not isinstance(found, StorageEndpoint):
            raise Invalid(f"the provider's endpoint of {topic}-{partition} is none: {found!r:.100}")
        store = self._stores.get(found.store)
        if store is None:
            raise Invalid(f"there is no store {found.store!r}, but {', '.join(self._stores)}")
        if found != endpoint_in(store, found.entropy_bits, found.layout):
            raise Invalid(
                f"the endpoint of {topic}-{partition} is not where store {store.name} is: plugin, "
                "location and prefix are the store's, an endpoint chooses the store"
            )
        return found


def load_provider(class_path: str, stores: Sequence[EndpointStore]) -> EndpointProvider:
    """The provider `module:Class`; Invalid if it cannot be loaded or is not a provider."""
    module, colon, name = class_path.partition(":")
    if not (module and colon and name):
        raise Invalid(f"{class_path!r} is not module:Class")
    try:
        made = getattr(import_module(module), name)(stores={one.name: one for one in stores})
    except Exception as error:  # code of users, which may raise anything
        raise Invalid(f"{class_path} cannot be used: {type(error).__name__}: {error}") from error
    if not callable(getattr(made, "endpoint", None)):
        raise Invalid(f"{class_path} has no method endpoint(cluster_id, topic, partition)")
    return CheckedProvider(made, stores)


def location_of(plugin: str, config: Mapping[str, object]) -> str:
    """Bucket or root of a store as a URI without its prefix, from its `rsm.config.*` values.

    Two stores of one plugin, location and prefix are one and the same. Empty where the
    settings of the kind are not known.
    """

    def of(key: str) -> str:
        return str(config.get(f"rsm.config.{key}") or "").rstrip("/")

    match plugin:
        case "local":
            return f"file://{of('root')}"
        case "s3":
            server = of("s3.endpoint.url")
            return f"s3://{of('s3.bucket.name')}" + (f" at {server}" if server else "")
        case "hdfs":
            cluster = of("hdfs.url") or of("hdfs.core-site.path")
            return f"{cluster}/{of('root').lstrip('/')}"
    return ""


def topic_pattern(text: str) -> re.Pattern[str]:
    """The pattern of a rule, which must match a topic's whole name; Invalid."""
    try:
        return re.compile(text)
    except re.error as error:
        raise Invalid(f"{text!r} is no regular expression: {error}") from error
