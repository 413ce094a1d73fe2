"""Checks of the stores: whether each is the one that its name stands for, and its set-up. Pure."""

from collections.abc import Iterable, Iterator

from kip405.contracts import FindingKind
from rlm.diagnosis.checks import Check, CheckFinding, alarm, warning
from rlm.diagnosis.observed import Observed, ObservedSettings, ObservedStore, known
from rlm.plans.disk import full_in_ms
from rlm.plans.problems import human_bytes, human_duration
from rlm.stores.connection import (
    FOREIGN_STORE_REMEDY,
    foreign_store_text,
    identity_mismatch,
    store_called,
)
from rlm.stores.inspection import stored_topic
from rlm.stores.reports import Level, evaluate

_REACH = (
    "Mend what the sentence names: address, bucket or folder, credentials and their rights "
    "(`rlm bucket-policy` prints them), TLS."
)
_IDENTITY = (
    "Point the store's settings at the bucket and prefix that this name has always had, or give "
    "another store a new name."
)
_SET_UP = "Take the rule away, or limit it to keys that are not ours."
_ROOM = "Give the store more room, or shorten total retention."


def _answers(site: Observed) -> Iterator[CheckFinding]:
    stores = known(site.stores)
    if not stores:
        yield warning(
            "stores",
            "no store is configured: nothing is tiered",
            "configure one: plugin, or stores",
        )
    for store in stores:
        if store.problem:
            yield alarm(_subject(store), store.problem, _REACH)


def _identity(site: Observed) -> Iterator[CheckFinding]:
    settings = known(site.settings)
    for store in _asked(site):
        yield from _of_store(store, settings, site.config.cluster_id)
    yield from _not_configured(site, settings)


def _of_store(
    store: ObservedStore, settings: ObservedSettings, cluster_id: str
) -> Iterator[CheckFinding]:
    """A store that nobody has used yet has no identity, and no record in the settings."""
    record = store_called(store.name, settings.view.stores())
    if record is not None:
        problem = identity_mismatch(store.identity, record.store_id, cluster_id)
        if problem is not None:
            where = f"; {store.name!r} is the name of that one, at {record.uri}"
            yield alarm(_subject(store), problem + where, _IDENTITY)
    elif store.identity is not None and store.identity.cluster_id != cluster_id:
        text = foreign_store_text(store.uri, store.identity, cluster_id)
        yield alarm(_subject(store), text, FOREIGN_STORE_REMEDY)


def _not_configured(site: Observed, settings: ObservedSettings) -> Iterator[CheckFinding]:
    names = {store.name for store in known(site.stores)}
    for record in settings.view.stores():
        called = record.names or ("default",)
        if names.isdisjoint(called):
            yield warning(
                f"store {called[0]}",
                f"the cluster knows this store ({record.plugin} {record.uri}), and it is not in "
                "this configuration: what lies there cannot be read or trimmed on",
                "name it in stores again, as the other services do",
            )


def _set_up(site: Observed) -> Iterator[CheckFinding]:
    topics = [
        stored_topic(record, site.config.cluster_id)
        for record in known(site.settings).view.topics()
    ]
    for store in _asked(site):
        for verdict in evaluate(store.findings, topics, store.prefix):
            if verdict.level is Level.ALARM:
                yield alarm(_subject(store), verdict.text, _SET_UP)


def _space(site: Observed) -> Iterator[CheckFinding]:
    """A store that is full takes no segments, and then nothing is trimmed any more."""
    floor_bytes = site.config.disk_min_free_bytes
    for store, free_bytes in _free(site):
        if free_bytes < floor_bytes:
            yield alarm(
                _subject(store),
                f"{human_bytes(free_bytes)} are free, and the floor is "
                f"{human_bytes(floor_bytes)} (disk.min.free.bytes): when it is full, nothing "
                "is copied, and brokers keep all that comes",
                _ROOM,
            )


def _growth(site: Observed) -> Iterator[CheckFinding]:
    """Of a store that knows its free space, at the rate of all copies together."""
    service = None if site.service is None else known(site.service)
    rate = None if service is None else service.copy_bytes_per_second
    for store, free_bytes in _free(site):
        left_ms = full_in_ms(free_bytes, rate)
        if left_ms is not None and left_ms < site.config.problem_disk_full_ms:
            yield warning(
                _subject(store),
                f"{human_bytes(free_bytes)} are free, and are copied in {human_duration(left_ms)} "
                "at the rate of the last minute: when it is full, nothing is copied, and brokers "
                "keep all that comes",
                f"{_ROOM} `rlm copy-limit` slows copies down.",
            )


def _free(site: Observed) -> Iterator[tuple[ObservedStore, int]]:
    for store in _asked(site):
        for finding in store.findings:
            if finding.kind is FindingKind.FREE_SPACE and finding.value is not None:
                yield store, finding.value


def _asked(site: Observed) -> Iterable[ObservedStore]:
    return (store for store in known(site.stores) if not store.problem)


def _subject(store: ObservedStore) -> str:
    return f"store {store.name}"


CHECKS = (
    Check(
        name="stores",
        asks="Does every configured store answer, with the bucket or folder and the credentials "
        "that it is given?",
        remedy=_REACH,
        decide=_answers,
    ),
    Check(
        name="store-identity",
        asks="Is every store the one that its name stands for, of this cluster, and is every store "
        "of this cluster configured?",
        remedy=_IDENTITY,
        decide=_identity,
    ),
    Check(
        name="store-setup",
        asks="Does a lifecycle rule of a store remove or archive segments before their time, or "
        "the store's identity? `rlm doctor --store` has all that is known of the set-up.",
        remedy=_SET_UP,
        decide=_set_up,
    ),
    Check(
        name="store-space",
        asks="Does each store that knows it have more free space than disk.min.free.bytes?",
        remedy=_ROOM,
        decide=_space,
    ),
    Check(
        name="store-growth",
        asks="Is a store full in less than problem.disk.full.ms at the rate of present copies?",
        remedy=_ROOM,
        decide=_growth,
    ),
)
