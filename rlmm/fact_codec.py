"""Facts as bytes: key text and JSON value, with the fields of docs/reference/formats.md; unknown
fields survive a round trip.

Pure. Unknown kinds are no error (None: a later version's fact); an unknown v, broken JSON or a
missing field is Corrupt, which stops everything that deletes or trims.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kip405.errors import Corrupt
from kip405.ids import PartitionKey, Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlmm.facts import (
    ClusterFact,
    DivergenceFact,
    Fact,
    FreezeFact,
    HistoryFact,
    HolesFact,
    ReaderFact,
    ServiceFact,
    Stamp,
    StartFact,
    StoreFact,
    TopicFact,
    TrimFact,
)
from rlmm.ledger import Hole

FORMAT_VERSION = 1
_STAMP_FIELDS = ("v", "kind", "node_id", "leader_epoch", "writer", "time_ms")
_SWITCH = {True: "on", False: "off"}
_SWITCHED = {word: value for value, word in _SWITCH.items()}
_Json = Mapping[str, Any]


def encode_fact(fact: Fact, stamp: Stamp) -> tuple[bytes, bytes]:
    """(key, value) as they go to the settings topic."""
    document = {
        "v": FORMAT_VERSION,
        "kind": fact.KIND,
        "node_id": stamp.node_id,
        "leader_epoch": stamp.leader_epoch,
        "writer": str(stamp.writer),
        "time_ms": stamp.time_ms,
        **_fields(fact),
    }
    document |= {name: value for name, value in fact.extra.items() if name not in document}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return fact.key.encode(), text.encode()


def decode_fact(key: bytes, value: bytes) -> tuple[Fact, Stamp] | None:
    """A fact with its stamp; None for a kind that this version does not know; Corrupt names key
    and cause.
    """
    try:
        name = key.decode()
        document = json.loads(value)
        if not isinstance(document, dict):
            raise TypeError("the value is no JSON object")
        if document["v"] != FORMAT_VERSION:
            raise ValueError(f"v={document['v']!r} is not known")
        stamp = Stamp(
            node_id=_integer(document, "node_id"),
            leader_epoch=_integer(document, "leader_epoch"),
            writer=Uuid.parse(document["writer"]),
            time_ms=_integer(document, "time_ms"),
        )
        fact = _decode(name, document)
    except KeyError as error:
        raise Corrupt(f"fact {key!r} has no field {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise Corrupt(f"fact {key!r}: {error}") from error
    return None if fact is None else (fact, stamp)


def _decode(name: str, document: _Json) -> Fact | None:
    kind = document["kind"]
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return None
    head, _, rest = name.partition("/")
    if head != kind:
        raise ValueError(f"kind {kind!r} does not belong to this key")
    fact = decoder(rest, document)
    if fact.key != name:
        raise ValueError(f"the key of this fact is {fact.key!r}")
    return fact


def _fields(fact: Fact) -> dict[str, Any]:
    """Fields of the value in their written order; what the key says is not repeated."""
    match fact:
        case ClusterFact():
            store = fact.default_store_id
            return {
                "cluster_id": fact.cluster_id,
                "ledger_topic_id": str(fact.ledger_topic_id),
                "settings_topic_id": str(fact.settings_topic_id),
                "default_store_id": None if store is None else str(store),
            }
        case StoreFact():
            names = {"names": list(fact.names)} if fact.names else {}
            return {"plugin": fact.plugin, "uri": fact.uri, "prefix": fact.prefix, **names}
        case TopicFact():
            return {
                "name": fact.name,
                "mode": fact.mode,
                "state": fact.state,
                "trim": _SWITCH[fact.trim],
                "retention_ms": fact.retention_ms,
                "retention_bytes": fact.retention_bytes,
                "local_retention_ms": fact.local_retention_ms,
                "local_retention_bytes": fact.local_retention_bytes,
                "originals": dict(fact.originals),
            }
        case StartFact():
            epoch = fact.decided_epoch
            return {
                "remote_log_start_offset": fact.remote_log_start_offset,
                "cause": fact.cause,
                **({} if epoch is None else {"decided_epoch": epoch}),
            }
        case TrimFact():
            return {"bound": fact.bound, "planned_epoch": fact.planned_epoch}
        case HolesFact() | HistoryFact():
            return _listed_fields(fact)
        case DivergenceFact():
            return {
                "action": fact.action,
                "epoch": fact.epoch,
                "offset": fact.offset,
                "cause": fact.cause,
            }
        case ServiceFact() | ReaderFact():
            return _heartbeat_fields(fact)
        case FreezeFact():
            return {"stopped": list(fact.stopped), "by": fact.by, "why": fact.why}


def _listed_fields(fact: HolesFact | HistoryFact) -> dict[str, Any]:
    if isinstance(fact, HolesFact):
        holes = [{"start": hole.start, "end": hole.end, "cause": hole.cause} for hole in fact.holes]
        return {"holes": holes}
    others = [_entries(one) for one in fact.others]
    return {
        "frozen": fact.frozen,
        "lineage": _entries(fact.lineage),
        **({"others": others} if others else {}),
    }


def _entries(lineage: Lineage) -> list[dict[str, int]]:
    return [{"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in lineage.entries]


def _heartbeat_fields(fact: ServiceFact | ReaderFact) -> dict[str, Any]:
    if isinstance(fact, ReaderFact):
        return {"http_address": fact.http_address, "version": fact.version}
    stores = fact.stores
    return {
        "listen": dict(fact.listen),
        "advertised": dict(fact.advertised),
        "version": fact.version,
        **({} if stores is None else {"stores": [str(one) for one in stores]}),
    }


def _cluster(rest: str, document: _Json) -> ClusterFact:
    store = document["default_store_id"]
    return ClusterFact(
        cluster_id=_text(document, "cluster_id"),
        ledger_topic_id=Uuid.parse(document["ledger_topic_id"]),
        settings_topic_id=Uuid.parse(document["settings_topic_id"]),
        default_store_id=None if store is None else Uuid.parse(store),
        extra=_extra(
            document, "cluster_id", "ledger_topic_id", "settings_topic_id", "default_store_id"
        ),
    )


def _store(rest: str, document: _Json) -> StoreFact:
    return StoreFact(
        store_id=Uuid.parse(rest),
        plugin=_text(document, "plugin"),
        uri=_text(document, "uri"),
        prefix=_text(document, "prefix"),
        names=_texts(document, "names") if "names" in document else (),
        extra=_extra(document, "plugin", "uri", "prefix", "names"),
    )


def _topic(rest: str, document: _Json) -> TopicFact:
    trim = _SWITCHED.get(document["trim"])
    if trim is None:
        raise ValueError(f"trim is {document['trim']!r}, not on or off")
    retention = (
        "retention_ms",
        "retention_bytes",
        "local_retention_ms",
        "local_retention_bytes",
    )
    return TopicFact(
        topic_id=Uuid.parse(rest),
        name=_text(document, "name"),
        mode=_text(document, "mode"),
        state=_text(document, "state"),
        trim=trim,
        retention_ms=_integer(document, "retention_ms"),
        retention_bytes=_integer(document, "retention_bytes"),
        local_retention_ms=_integer(document, "local_retention_ms"),
        local_retention_bytes=_integer(document, "local_retention_bytes"),
        originals=dict(document["originals"].items()),
        extra=_extra(document, "name", "mode", "state", "trim", "originals", *retention),
    )


def _start(rest: str, document: _Json) -> StartFact:
    return StartFact(
        partition=_partition(rest),
        remote_log_start_offset=_integer(document, "remote_log_start_offset"),
        cause=_text(document, "cause"),
        decided_epoch=_integer(document, "decided_epoch") if "decided_epoch" in document else None,
        extra=_extra(document, "remote_log_start_offset", "cause", "decided_epoch"),
    )


def _trim(rest: str, document: _Json) -> TrimFact:
    return TrimFact(
        partition=_partition(rest),
        bound=_integer(document, "bound"),
        planned_epoch=_integer(document, "planned_epoch"),
        extra=_extra(document, "bound", "planned_epoch"),
    )


def _holes(rest: str, document: _Json) -> HolesFact:
    return HolesFact(
        partition=_partition(rest),
        holes=tuple(
            Hole(
                start=_integer(hole, "start"),
                end=_integer(hole, "end"),
                cause=_text(hole, "cause"),
            )
            for hole in document["holes"]
        ),
        extra=_extra(document, "holes"),
    )


def _divergence(rest: str, document: _Json) -> DivergenceFact:
    return DivergenceFact(
        partition=_partition(rest),
        action=_text(document, "action"),
        epoch=_integer(document, "epoch"),
        offset=_integer(document, "offset"),
        cause=_text(document, "cause"),
        extra=_extra(document, "action", "epoch", "offset", "cause"),
    )


def _history(rest: str, document: _Json) -> HistoryFact:
    return HistoryFact(
        partition=_partition(rest),
        frozen=None if document["frozen"] is None else _text(document, "frozen"),
        lineage=_lineage(document["lineage"]),
        others=tuple(_lineage(one) for one in document.get("others", ())),
        extra=_extra(document, "frozen", "lineage", "others"),
    )


def _lineage(entries: Iterable[_Json]) -> Lineage:
    return Lineage(
        tuple(
            EpochEntry(epoch=_integer(entry, "epoch"), start_offset=_integer(entry, "start_offset"))
            for entry in entries
        )
    )


def _service(rest: str, document: _Json) -> ServiceFact:
    return ServiceFact(
        node_id=int(rest),
        listen=dict(document["listen"].items()),
        advertised=dict(document["advertised"].items()),
        version=_text(document, "version"),
        stores=_uuids(document, "stores") if "stores" in document else None,
        extra=_extra(document, "listen", "advertised", "version", "stores"),
    )


def _reader(rest: str, document: _Json) -> ReaderFact:
    return ReaderFact(
        grpc_address=rest,
        http_address=_text(document, "http_address"),
        version=_text(document, "version"),
        extra=_extra(document, "http_address", "version"),
    )


def _freeze(rest: str, document: _Json) -> FreezeFact:
    return FreezeFact(
        topic_id=Uuid.parse(rest) if rest else None,
        stopped=_texts(document, "stopped"),
        by=_text(document, "by"),
        why=_text(document, "why"),
        extra=_extra(document, "stopped", "by", "why"),
    )


_DECODERS: dict[str, Callable[[str, _Json], Fact]] = {
    ClusterFact.KIND: _cluster,
    StoreFact.KIND: _store,
    TopicFact.KIND: _topic,
    StartFact.KIND: _start,
    TrimFact.KIND: _trim,
    HolesFact.KIND: _holes,
    DivergenceFact.KIND: _divergence,
    HistoryFact.KIND: _history,
    ServiceFact.KIND: _service,
    ReaderFact.KIND: _reader,
    FreezeFact.KIND: _freeze,
}


def _extra(document: _Json, *known: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in (*_STAMP_FIELDS, *known)}


def _integer(document: _Json, name: str) -> int:
    value = document[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, not an integer")
    return value


def _text(document: _Json, name: str) -> str:
    value = document[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, not text")
    return value


def _texts(document: _Json, name: str) -> tuple[str, ...]:
    value = document[name]
    if not isinstance(value, list):
        raise TypeError(f"{name} is no list")
    return tuple(str(one) for one in value)


def _uuids(document: _Json, name: str) -> tuple[Uuid, ...]:
    return tuple(Uuid.parse(one) for one in _texts(document, name))


def _partition(rest: str) -> PartitionKey:
    topic_id, _, partition = rest.partition("/")
    return PartitionKey(Uuid.parse(topic_id), int(partition))
