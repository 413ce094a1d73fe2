"""Temporary: enable a topic by its fact, until `rlm topics` is there."""
import time
from typing import Any
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from rlm.clock import new_uuid
from rlmm.fact_codec import encode_fact
from rlmm.facts import Stamp, TopicFact
from kip405.ids import Uuid

def enable_by_fact(cluster: Any, topic: str) -> None:
    described = cluster.admin.describe_topics(__import__("confluent_kafka").TopicCollection([topic]))[topic].result(30)
    u = described.topic_id
    raw = u.get_most_significant_bits().to_bytes(8, "big", signed=True) + u.get_least_significant_bits().to_bytes(8, "big", signed=True)
    entries = [ConfigEntry(n, "-1", incremental_operation=AlterConfigOpType.SET) for n in ("retention.ms", "retention.bytes")]
    r = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    cluster.admin.incremental_alter_configs([r])[r].result(30)
    fact = TopicFact(topic_id=Uuid(raw), name=topic, mode="tier", state="enabled", trim=True, retention_ms=-1, retention_bytes=-1, local_retention_ms=-2, local_retention_bytes=1048576, originals={"retention.ms": None, "retention.bytes": None})
    k, v = encode_fact(fact, Stamp(node_id=1, leader_epoch=0, writer=new_uuid(), time_ms=int(time.time() * 1000)))
    p = Producer({"bootstrap.servers": cluster.direct, "acks": "all"})
    p.produce("__rlm_settings", value=v, key=k)
    assert p.flush(30) == 0
