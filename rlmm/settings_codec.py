"""Settings records as bytes: key text, JSON value and headers (docs/reference/formats.md). Pure.

Unknown fields survive a round trip. An unknown kind is no error (None: a settings record of a later
version). An unknown v, broken JSON or a missing field is Corrupt, which stops everything that
deletes or trims.

The headers say what the writer knew when it decided. A record can arrive long after it was sent:
its outcome was unknown, its writer was paused or gone, or the broker executed it late. `rlm.seen`
(int64) is how far the writer had read the settings topic; a reader that finds the record behind a
newer one of its key knows that the writer did not know the newer one. Tombstones have no value that
could hold their leader epoch, so `rlm.epoch` (int32) does. Records of older versions have neither
header, and count in their order.
"""

import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from kip405.errors import Corrupt
from kip405.ids import PartitionKey, Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlmm.command_codec import command_fields, read_copy_limit, read_freeze
from rlmm.formats import NewerFormat, formats_fields, read_formats
from rlmm.giveback_codec import (
    give_back_fields,
    given_back_fields,
    layout_fields,
    read_give_back,
    read_given_back,
    read_layout,
)
from rlmm.json_fields import Json, extra_fields, integer, text, texts, uuids
from rlmm.ledger import Hole
from rlmm.settings_records import (
    NO_LEADER_EPOCH,
    ClusterRecord,
    CopyLimitRecord,
    DeletionRecord,
    DiscardRecord,
    DivergenceRecord,
    FreezeRecord,
    HistoryRecord,
    HolesRecord,
    OffloadThresholds,
    ReaderRecord,
    ServiceRecord,
    SettingsRecord,
    Stamp,
    StartRecord,
    StoreRecord,
    TopicRecord,
    TotalRetention,
    TrimRecord,
)

FORMAT_VERSION = 1
_SWITCH = {True: "on", False: "off"}
_SWITCHED = {word: value for value, word in _SWITCH.items()}

_TOPIC_FIELDS = ("name", "mode", "state", "trim", "originals", "deletion_cause", "given_back")
_RETENTION = ("retention_ms", "retention_bytes", "local_retention_ms", "local_retention_bytes")

_INT32 = struct.Struct(">i")
Headers = tuple[tuple[str, bytes], ...]
SEEN_HEADER = "rlm.seen"
EPOCH_HEADER = "rlm.epoch"
_INT64 = struct.Struct(">q")


def encode_settings_record(record: SettingsRecord, stamp: Stamp) -> tuple[bytes, bytes]:
    """(key, value) as they go to the settings topic."""
    document = {
        "v": FORMAT_VERSION,
        "kind": record.KIND,
        "node_id": stamp.node_id,
        "leader_epoch": stamp.leader_epoch,
        "writer": str(stamp.writer),
        "time_ms": stamp.time_ms,
        **_fields(record),
    }
    document |= {name: value for name, value in record.extra.items() if name not in document}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return record.key.encode(), text.encode()


def decode_settings_record(key: bytes, value: bytes) -> tuple[SettingsRecord, Stamp] | None:
    """A settings record with its stamp; None for a kind that this version does not know; Corrupt
    names key and cause.
    """
    try:
        name = key.decode()
        document = json.loads(value)
        if not isinstance(document, dict):
            raise TypeError("the value is no JSON object")
        if document["v"] != FORMAT_VERSION:
            _refuse_version(key, document["v"])
        stamp = Stamp(
            node_id=integer(document, "node_id"),
            leader_epoch=integer(document, "leader_epoch"),
            writer=Uuid.parse(document["writer"]),
            time_ms=integer(document, "time_ms"),
        )
        record = _decode(name, document)
    except KeyError as error:
        raise Corrupt(f"settings record {key!r} has no field {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise Corrupt(f"settings record {key!r}: {error}") from error
    return None if record is None else (record, stamp)


def _refuse_version(key: bytes, version: object) -> NoReturn:
    """NewerFormat for one that a later version of the software has written."""
    is_newer = type(version) is int and version > FORMAT_VERSION
    kind = NewerFormat if is_newer else Corrupt
    raise kind(f"settings record {key!r}: v={version!r} is not known")


def _decode(name: str, document: Json) -> SettingsRecord | None:
    kind = document["kind"]
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return None
    head, _, rest = name.partition("/")
    if head != kind:
        raise ValueError(f"kind {kind!r} does not belong to this key")
    record = decoder(rest, document)
    if record.key != name:
        raise ValueError(f"the key of this settings record is {record.key!r}")
    return record


def _fields(record: SettingsRecord) -> dict[str, Any]:
    """Fields of the value in their written order; what the key says is not repeated."""
    match record:
        case ClusterRecord():
            return _cluster_fields(record)
        case StoreRecord():
            names = {"names": list(record.names)} if record.names else {}
            return {"plugin": record.plugin, "uri": record.uri, "prefix": record.prefix, **names}
        case TopicRecord():
            return _topic_fields(record)
        case StartRecord():
            epoch = record.decided_epoch
            return {
                "remote_log_start_offset": record.remote_log_start_offset,
                "cause": record.cause,
                **({} if epoch is None else {"decided_epoch": epoch}),
            }
        case TrimRecord():
            return {"bound": record.bound, "planned_epoch": record.planned_epoch}
        case HolesRecord() | HistoryRecord():
            return _listed_fields(record)
        case DivergenceRecord() | DeletionRecord() | DiscardRecord():
            return _decision_fields(record)
        case ServiceRecord() | ReaderRecord():
            return _heartbeat_fields(record)
        case FreezeRecord() | CopyLimitRecord():
            return command_fields(record)


def _cluster_fields(record: ClusterRecord) -> dict[str, Any]:
    store = record.default_store_id
    return {
        "cluster_id": record.cluster_id,
        "ledger_topic_id": str(record.ledger_topic_id),
        "settings_topic_id": str(record.settings_topic_id),
        "default_store_id": None if store is None else str(store),
    }


def _topic_fields(record: TopicRecord) -> dict[str, Any]:
    enforced = record.enforced
    return {
        "name": record.name,
        "mode": record.mode,
        "state": record.state,
        "trim": _SWITCH[record.trim],
        "retention_ms": record.retention_ms,
        "retention_bytes": record.retention_bytes,
        "local_retention_ms": record.local_retention_ms,
        "local_retention_bytes": record.local_retention_bytes,
        "originals": dict(record.originals),
        **(
            {}
            if enforced is None
            else {
                "enforced_retention_ms": enforced.retention_ms,
                "enforced_retention_bytes": enforced.retention_bytes,
            }
        ),
        **({"deletion_cause": record.deletion_cause} if record.deletion_cause else {}),
        **_offload_fields(record.offload),
        **given_back_fields(record.given_back),
        **layout_fields(record.layout),
    }


def _offload_fields(offload: OffloadThresholds) -> dict[str, int]:
    """Only what is set."""
    values = (offload.copy_lag_ms, offload.copy_lag_bytes, offload.deletion_lag_ms)
    return {name: value for name, value in zip(_OFFLOAD, values, strict=True) if value is not None}


_DISCARD = ("by", "why", "epoch", "last_epoch", "offset", "delay_ms", "decided_ms")
_FORMER_START = ("former_start", "former_start_epoch")


def _decision_fields(record: DivergenceRecord | DeletionRecord | DiscardRecord) -> dict[str, Any]:
    if isinstance(record, DiscardRecord):
        fields = {name: getattr(record, name) for name in (*_DISCARD, *_FORMER_START)}
        return {name: value for name, value in fields.items() if value is not None}
    if isinstance(record, DeletionRecord):
        return {
            "what": record.what,
            "by": record.by,
            "delay_ms": record.delay_ms,
            "decided_ms": record.decided_ms,
        }
    return {
        "action": record.action,
        "epoch": record.epoch,
        "offset": record.offset,
        "cause": record.cause,
    }


def _listed_fields(record: HolesRecord | HistoryRecord) -> dict[str, Any]:
    if isinstance(record, HolesRecord):
        holes = [
            {"start": hole.start, "end": hole.end, "cause": hole.cause} for hole in record.holes
        ]
        return {"holes": holes}
    others = [_entries(one) for one in record.others]
    return {
        "frozen": record.frozen,
        "lineage": _entries(record.lineage),
        **({"others": others} if others else {}),
    }


def _entries(lineage: Lineage) -> list[dict[str, int]]:
    return [{"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in lineage.entries]


def _heartbeat_fields(record: ServiceRecord | ReaderRecord) -> dict[str, Any]:
    if isinstance(record, ReaderRecord):
        fields = {"http_address": record.http_address, "version": record.version}
        return {**fields, **formats_fields(record.formats)}
    stores = record.stores
    return {
        "listen": dict(record.listen),
        "advertised": dict(record.advertised),
        "version": record.version,
        **({} if stores is None else {"stores": [str(one) for one in stores]}),
        **give_back_fields(record.give_back),
        **formats_fields(record.formats),
    }


def _cluster(rest: str, document: Json) -> ClusterRecord:
    store = document["default_store_id"]
    return ClusterRecord(
        cluster_id=text(document, "cluster_id"),
        ledger_topic_id=Uuid.parse(document["ledger_topic_id"]),
        settings_topic_id=Uuid.parse(document["settings_topic_id"]),
        default_store_id=None if store is None else Uuid.parse(store),
        extra=extra_fields(
            document, "cluster_id", "ledger_topic_id", "settings_topic_id", "default_store_id"
        ),
    )


def _store(rest: str, document: Json) -> StoreRecord:
    return StoreRecord(
        store_id=Uuid.parse(rest),
        plugin=text(document, "plugin"),
        uri=text(document, "uri"),
        prefix=text(document, "prefix"),
        names=texts(document, "names") if "names" in document else (),
        extra=extra_fields(document, "plugin", "uri", "prefix", "names"),
    )


def _topic(rest: str, document: Json) -> TopicRecord:
    trim = _SWITCHED.get(document["trim"])
    if trim is None:
        raise ValueError(f"trim is {document['trim']!r}, not on or off")
    return TopicRecord(
        topic_id=Uuid.parse(rest),
        name=text(document, "name"),
        mode=text(document, "mode"),
        state=text(document, "state"),
        trim=trim,
        retention_ms=integer(document, "retention_ms"),
        retention_bytes=integer(document, "retention_bytes"),
        local_retention_ms=integer(document, "local_retention_ms"),
        local_retention_bytes=integer(document, "local_retention_bytes"),
        originals=dict(document["originals"].items()),
        enforced=_enforced(document),
        deletion_cause=text(document, "deletion_cause") if "deletion_cause" in document else "",
        offload=_offload(document),
        given_back=read_given_back(document),
        layout=read_layout(document),
        extra=extra_fields(document, *_TOPIC_FIELDS, *_RETENTION, *_ENFORCED, *_OFFLOAD, "layout"),
    )


_ENFORCED = ("enforced_retention_ms", "enforced_retention_bytes")
_OFFLOAD = ("remote_copy_lag_ms", "remote_copy_lag_bytes", "offload_deletion_lag_ms")


def _offload(document: Json) -> OffloadThresholds:
    lag_ms, lag_bytes, deletion_lag_ms = (
        integer(document, name) if name in document else None for name in _OFFLOAD
    )
    return OffloadThresholds(
        copy_lag_ms=lag_ms, copy_lag_bytes=lag_bytes, deletion_lag_ms=deletion_lag_ms
    )


def _enforced(document: Json) -> TotalRetention | None:
    if not any(name in document for name in _ENFORCED):
        return None
    retention_ms, retention_bytes = (integer(document, name) for name in _ENFORCED)
    return TotalRetention(retention_ms=retention_ms, retention_bytes=retention_bytes)


def _deletion(rest: str, document: Json) -> DeletionRecord:
    return DeletionRecord(
        topic_id=Uuid.parse(rest),
        what=text(document, "what"),
        by=text(document, "by"),
        delay_ms=integer(document, "delay_ms"),
        decided_ms=integer(document, "decided_ms"),
        extra=extra_fields(document, "what", "by", "delay_ms", "decided_ms"),
    )


def _start(rest: str, document: Json) -> StartRecord:
    return StartRecord(
        partition=_partition(rest),
        remote_log_start_offset=integer(document, "remote_log_start_offset"),
        cause=text(document, "cause"),
        decided_epoch=integer(document, "decided_epoch") if "decided_epoch" in document else None,
        extra=extra_fields(document, "remote_log_start_offset", "cause", "decided_epoch"),
    )


def _trim(rest: str, document: Json) -> TrimRecord:
    return TrimRecord(
        partition=_partition(rest),
        bound=integer(document, "bound"),
        planned_epoch=integer(document, "planned_epoch"),
        extra=extra_fields(document, "bound", "planned_epoch"),
    )


def _holes(rest: str, document: Json) -> HolesRecord:
    return HolesRecord(
        partition=_partition(rest),
        holes=tuple(
            Hole(
                start=integer(hole, "start"),
                end=integer(hole, "end"),
                cause=text(hole, "cause"),
            )
            for hole in document["holes"]
        ),
        extra=extra_fields(document, "holes"),
    )


def _divergence(rest: str, document: Json) -> DivergenceRecord:
    return DivergenceRecord(
        partition=_partition(rest),
        action=text(document, "action"),
        epoch=integer(document, "epoch"),
        offset=integer(document, "offset"),
        cause=text(document, "cause"),
        extra=extra_fields(document, "action", "epoch", "offset", "cause"),
    )


def _discard(rest: str, document: Json) -> DiscardRecord:
    return DiscardRecord(
        partition=_partition(rest),
        by=text(document, "by"),
        why=text(document, "why"),
        epoch=integer(document, "epoch"),
        last_epoch=integer(document, "last_epoch"),
        offset=integer(document, "offset"),
        delay_ms=integer(document, "delay_ms"),
        decided_ms=integer(document, "decided_ms"),
        **{name: integer(document, name) for name in _FORMER_START if name in document},
        extra=extra_fields(document, *_DISCARD, *_FORMER_START),
    )


def _history(rest: str, document: Json) -> HistoryRecord:
    return HistoryRecord(
        partition=_partition(rest),
        frozen=None if document["frozen"] is None else text(document, "frozen"),
        lineage=_lineage(document["lineage"]),
        others=tuple(_lineage(one) for one in document.get("others", ())),
        extra=extra_fields(document, "frozen", "lineage", "others"),
    )


def _lineage(entries: Iterable[Json]) -> Lineage:
    return Lineage(
        tuple(
            EpochEntry(epoch=integer(entry, "epoch"), start_offset=integer(entry, "start_offset"))
            for entry in entries
        )
    )


_SERVICE = ("listen", "advertised", "version", "stores", "give_back", "formats")


def _service(rest: str, document: Json) -> ServiceRecord:
    return ServiceRecord(
        node_id=int(rest),
        listen=dict(document["listen"].items()),
        advertised=dict(document["advertised"].items()),
        version=text(document, "version"),
        stores=uuids(document, "stores") if "stores" in document else None,
        give_back=read_give_back(document),
        formats=read_formats(document),
        extra=extra_fields(document, *_SERVICE),
    )


def _reader(rest: str, document: Json) -> ReaderRecord:
    return ReaderRecord(
        grpc_address=rest,
        http_address=text(document, "http_address"),
        version=text(document, "version"),
        formats=read_formats(document),
        extra=extra_fields(document, "http_address", "version", "formats"),
    )


_DECODERS: dict[str, Callable[[str, Json], SettingsRecord]] = {
    ClusterRecord.KIND: _cluster,
    StoreRecord.KIND: _store,
    TopicRecord.KIND: _topic,
    DeletionRecord.KIND: _deletion,
    StartRecord.KIND: _start,
    TrimRecord.KIND: _trim,
    HolesRecord.KIND: _holes,
    DivergenceRecord.KIND: _divergence,
    DiscardRecord.KIND: _discard,
    HistoryRecord.KIND: _history,
    ServiceRecord.KIND: _service,
    ReaderRecord.KIND: _reader,
    FreezeRecord.KIND: read_freeze,
    CopyLimitRecord.KIND: read_copy_limit,
}


def _partition(rest: str) -> PartitionKey:
    topic_id, _, partition = rest.partition("/")
    return PartitionKey(Uuid.parse(topic_id), int(partition))


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterKnowledge:
    """`seen`: the writer knew every record below that offset. `leader_epoch`: of a tombstone's
    writer.
    """

    seen: int
    leader_epoch: int = NO_LEADER_EPOCH

    def encode(self) -> Headers:
        return (
            (SEEN_HEADER, _INT64.pack(self.seen)),
            (EPOCH_HEADER, _INT32.pack(self.leader_epoch)),
        )

    @classmethod
    def decode(cls, headers: Headers) -> "WriterKnowledge | None":
        """None where the writer did not say; Corrupt for a header of another size."""
        found = dict(headers)
        if SEEN_HEADER not in found:
            return None
        try:
            (seen,) = _INT64.unpack(found[SEEN_HEADER])
            (leader_epoch,) = _INT32.unpack(found.get(EPOCH_HEADER, _INT32.pack(NO_LEADER_EPOCH)))
        except struct.error as error:
            raise Corrupt(f"headers of a settings record: {error}") from error
        return cls(seen=seen, leader_epoch=leader_epoch)
