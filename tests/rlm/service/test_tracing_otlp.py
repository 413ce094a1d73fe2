"""Traces as a collector gets them: an OTLP receiver decodes what the exporter sends over gRPC."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as pb_grpc
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status

from kip405.errors import Unavailable
from rlm.service.tracing import build_tracer
from tests.builders.ledger import PARTITION
from tests.builders.threads import some_threads
from tests.rlm.config.test_config import read_reader, reads
from tests.rlm.proxy.fakes import FakeBroker, Log, proxied
from tests.rlm.service.test_tracing import COPY_STEPS, FETCH_ATTRIBUTES, fetch
from tests.rlm.tier_site import Site

__all__ = ["reads"]


class Collector(pb_grpc.TraceServiceServicer):
    """Keeps what it is sent, as gRPC has decoded it."""

    def __init__(self) -> None:
        self.received: list[ResourceSpans] = []

    def Export(
        self, request: pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> pb.ExportTraceServiceResponse:
        self.received.extend(request.resource_spans)
        return pb.ExportTraceServiceResponse()

    def spans(self, name: str = "") -> list[Span]:
        scopes = (scope for resource in self.received for scope in resource.scope_spans)
        found = (span for scope in scopes for span in scope.spans)
        return [span for span in found if not name or span.name == name]

    def below(self, parent: Span) -> list[Span]:
        """Its children, in the order in which they began."""
        found = [one for one in self.spans() if one.parent_span_id == parent.span_id]
        return sorted(found, key=lambda one: one.start_time_unix_nano)


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    server, kept = grpc.server(ThreadPoolExecutor(1)), Collector()
    pb_grpc.add_TraceServiceServicer_to_server(kept, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield kept, f"http://127.0.0.1:{port}"
    server.stop(None).wait()


def plain(attributes: Any) -> dict[str, str | int | bool]:
    def value(one: KeyValue) -> str | int | bool:
        kind = one.value.WhichOneof("value")
        assert kind in ("string_value", "int_value", "bool_value"), one
        found: str | int | bool = getattr(one.value, kind)
        return found

    return {one.key: value(one) for one in attributes}


async def test_a_collector_decodes_a_copy_and_a_fetch(
    tmp_path: Path,
    reads: dict[str, Any],
    collector: tuple[Collector, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlm.service.tracing._SEND_TIMEOUT_S", 120)  # a busy machine drops nothing
    kept, endpoint = collector
    settings = reads | {"tracing.otlp.endpoint": endpoint, "tracing.sample.ratio": 1}
    config = read_reader(tmp_path, settings)
    tracer = build_tracer(config, "node-1")
    assert tracer is not None

    def fail(operation: str) -> None:
        raise Unavailable("of alice at 10.0.0.1")

    broker = FakeBroker()
    broker.logs[PARTITION.topic, PARTITION.partition] = Log(
        start=150, high_watermark=300, last_stable=300, leader_epoch=0
    )
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks:
            site = Site(tmp_path, tasks, threads, tracer)
            await site.prepare()  # copies two segments
            site.rig.broker.log_start_offset = 150
            await site.leadership.refresh()
            await site.barrier()
            async with proxied(site.tier, broker, barrier_wait_ms=5_000, tracer=tracer) as world:
                answer = await fetch(world, 0)
            site.rig.write_log(0, 100, 250, 300, end=350)
            site.rig.store.before = fail
            with pytest.raises(Unavailable):
                await site.rig.copy.run(site.rig.led)
        await threads.run(tracer.close)

    resource = plain(kept.received[0].resource.attributes)
    assert (resource["service.name"], resource["service.instance.id"]) == ("kafka-rlm", "node-1")
    assert resource["rlm.cluster.id"] == config.cluster_id
    _check_copies(kept)
    [fetched] = kept.spans("Fetch")
    attributes = plain(fetched.attributes)
    assert attributes.keys() == FETCH_ATTRIBUTES
    assert attributes["rlm.remote_bytes"] == len(answer["records"]) > 1_000
    for span in kept.spans():
        assert (len(span.trace_id), len(span.span_id)) == (16, 8)
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    if world.records_memory is None:  # in another process a read is a trace of its own
        [read] = kept.below(fetched)
        assert read.trace_id == fetched.trace_id
        assert plain(read.attributes)["rlm.topic"] == PARTITION.topic
        assert {one.name for one in kept.below(read)} == {"load of indexes", "load of chunks"}


def _check_copies(kept: Collector) -> None:
    """Two that went well, with their steps, and the one that failed, by its kind alone."""
    *whole, broken = sorted(kept.spans("copy"), key=lambda one: one.start_time_unix_nano)
    assert [plain(one.attributes)["rlm.base_offset"] for one in whole] == [0, 100]
    for one in whole:
        assert [step.name for step in kept.below(one)] == [f"copy: {name}" for name in COPY_STEPS]
        assert one.status.code != Status.STATUS_CODE_ERROR
    assert broken.status == Status(code=Status.STATUS_CODE_ERROR, message="UNAVAILABLE")
    assert b"alice" not in b"".join(one.SerializeToString() for one in kept.received)
