"""The stores of an attached reader: which they are follows from their identities alone.

The settings of a cluster say which store a name means; here nobody does. So the identity that a
store has must name the cluster, and nothing is written: a store without one is refused (H11).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kip405.contracts import StoreIdentity
from kip405.errors import Invalid
from kip405.ids import Uuid
from rlm.clock import Clock, new_uuid
from rlm.config import AttachedConfig
from rlm.remote_log.attached import AttachedLedger, AttachedLog, AttachedSettings
from rlm.stores.connection import Memory
from rlm.stores.opened import (
    OpenPlugin,
    OpenStores,
    connected_stores,
    open_plugins,
    reading_terms,
    with_plugins,
)
from rlmm.settings_records import StoreRecord
from rsm_plugins.contract.client import GrpcRemoteStorageManager


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenStores:
    """By id; a store that the file names twice is there once."""

    managers: Mapping[Uuid, GrpcRemoteStorageManager]
    records: tuple[StoreRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedStores:
    """The stores as readers use them, and as they are proven before they are read."""

    cluster_id: str
    opened: OpenStores

    async def prove(self) -> ProvenStores:
        """Ask every store which one it is. Invalid: it is not this cluster's. Unavailable: it is
        away.
        """
        managers: dict[Uuid, GrpcRemoteStorageManager] = {}
        records: dict[Uuid, StoreRecord] = {}
        for plugin in self.opened.plugins:
            identity = await _identity(plugin)
            if identity.cluster_id != self.cluster_id:
                raise Invalid(
                    f"store {plugin.store.name!r} belongs to cluster {identity.cluster_id}, "
                    f"cluster.id is {self.cluster_id}: take the store out, or choose that cluster"
                )
            info = await plugin.manager.get_info()
            known = records.get(identity.store_id)
            records[identity.store_id] = StoreRecord(
                store_id=identity.store_id,
                plugin=info.name,
                uri=info.store_uri,
                prefix="",
                names=(*(known.names if known else ()), plugin.store.name),
            )
            managers[identity.store_id] = plugin.manager
        return ProvenStores(managers=managers, records=tuple(records.values()))


def open_attached(config: AttachedConfig, log: AttachedLog, clock: Clock) -> AttachedStores:
    """Nothing is contacted. Needs a running loop. Invalid, Unavailable: see open_plugins."""
    settings = AttachedSettings(log)
    memory = Memory(
        cluster_id=config.cluster_id,
        settings=settings,
        metadata=log,
        clock=clock,
        new_uuid=new_uuid,
        may_write=False,
    )
    opened = connected_stores(
        open_plugins(config.stores, reading_terms(config), clock),
        memory,
        AttachedLedger(log),
        settings,
        hedged_percent=config.fetch_hedge_max_percent,
    )
    return AttachedStores(cluster_id=config.cluster_id, opened=opened)


async def own_cluster(config: AttachedConfig, clock: Clock) -> str:
    """The cluster that all stores belong to. Invalid: they belong to several, or one has no
    identity. Unavailable: a store does not answer.
    """

    async def identities(plugins: Sequence[OpenPlugin]) -> list[tuple[str, str]]:
        return [(one.store.name, (await _identity(one)).cluster_id) for one in plugins]

    found = await with_plugins(config, clock, identities)
    clusters = {cluster_id for _, cluster_id in found}
    if len(clusters) > 1:
        listed = ", ".join(f"{cluster_id} (store {name})" for name, cluster_id in found)
        raise Invalid(
            f"cluster.id: missing, and the stores belong to several clusters: {listed}. Choose "
            "one, and take the stores of the others out"
        )
    return clusters.pop()


async def _identity(plugin: OpenPlugin) -> StoreIdentity:
    await plugin.started()
    identity = await plugin.manager.read_identity()
    if identity is None:
        raise Invalid(
            f"store {plugin.store.name!r} has no rlm-store.json, so it is empty, or nobody knows "
            "whose it is: bring that object back. `rlm download --cluster-id` reads without it"
        )
    return identity
