"""Traces of a copy and of a Fetch: which spans there are, what they say, and what it takes."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kafka_protocol.apis import FETCH
from kip405.errors import Invalid, RemoteStorageError, Unavailable
from rlm.config import ReaderConfig
from rlm.service.tracing import OtlpTracer, build_tracer, close_tracer, provider_of
from rlm.spans import NO_SPAN
from tests.builders.ledger import PARTITION
from tests.builders.threads import some_threads
from tests.rlm.config.test_config import read_reader, reads
from tests.rlm.proxy.fakes import FakeBroker, Log, Proxied, asked, only, proxied
from tests.rlm.tier_site import Site

__all__ = ["reads"]

ENDPOINT = {"tracing.otlp.endpoint": "http://127.0.0.1:4317"}
COPY_STEPS = ["read", "publish started", "upload", "write manifest", "publish finished"]
FETCH_ATTRIBUTES = {"rlm.partitions", "rlm.remote_partitions", "rlm.remote_bytes"}
READ_ATTRIBUTES = {
    *("rlm.topic", "rlm.partition", "rlm.offset", "rlm.max_bytes"),
    *("rlm.bytes", "rlm.chunks", "rlm.all_from_memory"),
}


@dataclass
class Traced:
    """A tracer that keeps what it traces."""

    tracer: OtlpTracer
    exporter: InMemorySpanExporter

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        found: Sequence[ReadableSpan] = self.exporter.get_finished_spans()
        return found

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def below(self, parent: ReadableSpan) -> list[ReadableSpan]:
        """Its children, in the order in which they began."""
        found = [one for one in self.spans if one.parent and one.parent.span_id == id_of(parent)]
        return sorted(found, key=lambda one: one.start_time or 0)


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def traced(config: ReaderConfig) -> Traced:
    provider, exporter = provider_of(config, "tests"), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Traced(OtlpTracer(provider), exporter)


@pytest.fixture
def kept(tmp_path: Path, reads: dict[str, Any]) -> Traced:
    return traced(read_reader(tmp_path, reads | {"tracing.sample.ratio": 1}))


@pytest.fixture
async def site(tmp_path: Path, kept: Traced) -> AsyncIterator[Site]:
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks:
            made = Site(tmp_path, tasks, threads, kept.tracer)
            await made.prepare()
            yield made


@pytest.mark.usefixtures("site")
def test_a_copy_has_its_steps(kept: Traced) -> None:
    copies = kept.named("copy")
    assert {(one.attributes or {})["rlm.base_offset"] for one in copies} == {0, 100}
    assert len(copies) == 2
    for one in copies:
        assert [step.name for step in kept.below(one)] == [f"copy: {name}" for name in COPY_STEPS]
        assert one.status.is_ok or one.status.is_unset


async def test_a_copy_that_fails_says_by_which_kind_of_error(site: Site, kept: Traced) -> None:
    def fail(operation: str) -> None:
        raise Unavailable("of alice at 10.0.0.1")

    kept.exporter.clear()
    site.rig.write_log(0, 100, 250, 300, end=350)
    site.rig.store.before = fail
    with pytest.raises(Unavailable):
        await site.rig.copy.run(site.rig.led)
    [copy] = kept.named("copy")
    assert (copy.status.description, copy.events) == ("UNAVAILABLE", ())
    assert [step.name for step in kept.below(copy)][-1] == "copy: upload"


async def fetch(world: Proxied, offset: int) -> dict[str, Any]:
    request = {
        "max_wait_ms": 20_000,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "isolation_level": 0,
        "topics": [{"topic": PARTITION.topic, "partitions": [asked(offset)]}],
    }
    return only(await (await world.connect()).call(FETCH, 11, request))


async def test_a_fetch_has_its_reads_and_what_they_loaded(site: Site, kept: Traced) -> None:
    site.rig.broker.log_start_offset = 150
    broker = FakeBroker()
    broker.logs[PARTITION.topic, PARTITION.partition] = Log(
        start=150, high_watermark=300, last_stable=300, leader_epoch=0
    )
    await site.leadership.refresh()
    await site.barrier()
    async with proxied(site.tier, broker, barrier_wait_ms=5_000, tracer=kept.tracer) as world:
        kept.exporter.clear()
        answers = [await fetch(world, 0), await fetch(world, 0), await fetch(world, 290)]
    assert len(answers[0]["records"]) == len(answers[1]["records"]) > 1_000
    first, second = (one for one in kept.named("Fetch"))  # the third needed nothing remote
    attributes = dict(first.attributes or {})
    assert attributes.keys() == FETCH_ATTRIBUTES
    assert attributes["rlm.remote_bytes"] == len(answers[0]["records"])
    if world.records_memory is not None:  # a read in another process is a trace of its own
        return
    [cold], [warm] = (kept.below(one) for one in (first, second))
    assert {one.name for one in kept.below(cold)} == {"load of indexes", "load of chunks"}
    assert dict(cold.attributes or {}).keys() == READ_ATTRIBUTES
    assert not (cold.attributes or {})["rlm.all_from_memory"]
    assert (warm.attributes or {})["rlm.all_from_memory"]
    assert not kept.below(warm)


def test_a_span_may_begin_in_one_task_and_end_in_another(kept: Traced) -> None:
    """Nothing is current afterwards where it began: the next trace would be its child."""
    from opentelemetry import trace

    with kept.tracer.span("outer") as outer:
        assert trace.get_current_span() is trace.INVALID_SPAN
        with kept.tracer.span("unrelated"):
            pass
        with kept.tracer.span("inner", outer.reference):
            pass
    [unrelated], [inner] = kept.named("unrelated"), kept.named("inner")
    assert unrelated.parent is None
    assert inner.parent is not None
    assert inner.parent.span_id == id_of(kept.named("outer")[0])


@pytest.mark.parametrize("error", [Unavailable("x"), ValueError("secret")])
def test_the_text_of_an_error_is_kept_out(kept: Traced, error: Exception) -> None:
    with pytest.raises(type(error)), kept.tracer.span("fails"):
        raise error
    [found] = kept.named("fails")
    kind = error.kind.name if isinstance(error, RemoteStorageError) else "ValueError"
    assert (found.status.description, found.events) == (kind, ())


def test_what_is_not_sampled_has_no_children_either(tmp_path: Path, reads: dict[str, Any]) -> None:
    config = read_reader(tmp_path, reads | {"tracing.sample.ratio": 0})
    kept = traced(config)
    with kept.tracer.span("parent") as parent, kept.tracer.span("child", parent.reference) as child:
        child.set(bytes=1)
    assert not kept.spans


def test_nothing_is_traced_unless_it_is_asked_for(tmp_path: Path, reads: dict[str, Any]) -> None:
    config = read_reader(tmp_path, reads)
    assert (config.tracing_otlp_endpoint, config.tracing_sample_ratio) == (None, 0.01)
    assert build_tracer(config, "tests") is None


def test_a_collector_that_is_away_holds_nothing_up(tmp_path: Path, reads: dict[str, Any]) -> None:
    away = {"tracing.otlp.endpoint": "http://127.0.0.1:9", "tracing.sample.ratio": 1}
    made = build_tracer(read_reader(tmp_path, reads | away), "tests")
    assert made is not None
    for _ in range(5_000):  # more than the queue has
        with made.span("dropped", NO_SPAN, bytes=1):
            pass
    made.close()


async def test_a_collector_that_never_answers_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, kept: Traced
) -> None:
    """Several batches may wait, and each may take its time."""
    monkeypatch.setattr("rlm.service.tracing._SEND_TIMEOUT_S", 0.01)
    answers = threading.Event()
    monkeypatch.setattr(kept.tracer, "close", answers.wait)
    try:
        with some_threads(1) as threads:
            async with asyncio.timeout(30):
                await close_tracer(kept.tracer, threads)
    finally:
        answers.set()


async def test_threads_that_are_closed_make_no_end_fail(kept: Traced) -> None:
    with some_threads(1) as threads:
        threads.close()
        await close_tracer(kept.tracer, threads)


def test_without_its_packages_the_start_is_refused(tmp_path: Path, reads: dict[str, Any]) -> None:
    config = read_reader(tmp_path, reads | ENDPOINT)
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from kip405.errors import Invalid\n"
        "from rlm.config import load_reader\n"
        "from rlm.service.tracing import build_tracer\n"
        "from pathlib import Path\n"
        "try: build_tracer(load_reader(Path(sys.argv[1])), 'tests')\n"
        "except Invalid as error: print(error)\n"
        "print('opentelemetry' in sys.modules)\n"
    )
    assert config.tracing_otlp_endpoint is not None
    command = [sys.executable, "-c", code, str(tmp_path / "reader.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "pip install 'kafka-rlm[otel]'" in done.stdout


def test_services_import_no_opentelemetry_by_themselves() -> None:
    code = "import sys, rlm.service.broker_service; print('opentelemetry' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tracing.otlp.endpoint", "collector:4317"),
        ("tracing.otlp.endpoint", "http://collector"),
        ("tracing.otlp.endpoint", "http://user:secret@collector:4317"),
        ("tracing.otlp.endpoint", "http://collector:4317/path"),
        ("tracing.sample.ratio", 1.5),
        ("tracing.sample.ratio", -0.1),
        ("tracing.sample.ratio", True),
    ],
)
def test_what_is_refused(tmp_path: Path, reads: dict[str, Any], key: str, value: object) -> None:
    with pytest.raises(Invalid, match=key) as caught:
        read_reader(tmp_path, reads | {key: value})
    assert "secret" not in str(caught.value)
