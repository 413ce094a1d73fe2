"""Traces by OpenTelemetry, sent by OTLP (`tracing.otlp.endpoint`); its packages are the extra otel.

They are imported only where traces are wanted. Spans are sent in batches by a thread of their own,
from a bounded queue: while the collector is away, spans are dropped, and nothing else waits. The
exporter's own variables hold (OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE and others).
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog

from kip405.errors import Invalid, RemoteStorageError
from kip405.process import software_version
from rlm.config import CommonConfig
from rlm.spans import NO_SPAN, Attribute, Span, SpanReference
from rsm_plugins.threads import Threads

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = structlog.get_logger(__name__)
_TRACEPARENT = "traceparent"
_QUEUE_SPANS = 2_048
_BATCH_SPANS = 512
_SEND_EVERY_MS = 5_000
_SEND_TIMEOUT_S = 2
"""Also the longest that the end of a service waits for the last spans."""
_NEEDS = "tracing.otlp.endpoint needs the packages of OpenTelemetry: pip install 'kafka-rlm[otel]'"


class OtlpTracer:
    """A Tracer over OpenTelemetry's SDK."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation import tracecontext

        self._provider = provider
        self._trace, self._no_context = trace, Context()
        self._references = tracecontext.TraceContextTextMapPropagator()
        self._tracer = provider.get_tracer("rlm", software_version())

    @contextmanager
    def span(
        self, name: str, parent: SpanReference = NO_SPAN, **attributes: Attribute
    ) -> Iterator[Span]:
        """See Tracer."""
        carrier = {_TRACEPARENT: parent} if parent else {}
        context = self._references.extract(carrier, context=self._no_context)
        span = self._tracer.start_span(name, context=context, attributes=_keys(attributes))
        try:
            yield _OtlpSpan(span, self._reference)
        except BaseException as error:
            span.set_status(self._trace.StatusCode.ERROR, _kind(error))
            raise
        finally:
            span.end()

    def _reference(self, span: Any) -> SpanReference:
        carrier: dict[str, str] = {}
        self._references.inject(carrier, context=self._trace.set_span_in_context(span))
        return carrier.get(_TRACEPARENT, NO_SPAN)

    def close(self) -> None:
        """Send what is left, as far as the collector takes it at once. Waits for that."""
        self._provider.shutdown()


class _OtlpSpan:
    def __init__(self, span: Any, reference_of: Callable[[Any], SpanReference]) -> None:
        self._span = span
        self._reference_of = reference_of

    @property
    def reference(self) -> SpanReference:
        return self._reference_of(self._span)

    def set(self, **attributes: Attribute) -> None:
        if self._span.is_recording():
            self._span.set_attributes(_keys(attributes))


def _keys(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    return {f"rlm.{name}": value for name, value in attributes.items()}


def _kind(error: BaseException) -> str:
    """Texts of errors may name clients and addresses."""
    return error.kind.name if isinstance(error, RemoteStorageError) else type(error).__name__


def build_tracer(config: CommonConfig, service: str) -> OtlpTracer | None:
    """None: nothing is traced. Invalid: the packages are missing. Connects to nothing yet;
    `service`: its name in traces.
    """
    if config.tracing_otlp_endpoint is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise Invalid(_NEEDS) from error
    endpoint = config.tracing_otlp_endpoint
    exporter = OTLPSpanExporter(
        endpoint=endpoint, insecure=endpoint.startswith("http://"), timeout=_SEND_TIMEOUT_S
    )
    provider = provider_of(config, service)
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=_QUEUE_SPANS,
            schedule_delay_millis=_SEND_EVERY_MS,
            max_export_batch_size=_BATCH_SPANS,
        )
    )
    return OtlpTracer(provider)


async def close_tracer(tracer: OtlpTracer | None, threads: Threads) -> None:
    """Before the process ends, which does not wait longer than for one batch: a collector that
    accepts connections and does not answer would take so long for each. Never fails.
    """
    if tracer is None:
        return
    try:
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            await threads.run(tracer.close)
    except (TimeoutError, RemoteStorageError):
        log.warning("last_spans_dropped")


def provider_of(config: CommonConfig, service: str) -> "TracerProvider":
    """What makes spans, and samples them; it has no exporter yet."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    attributes = {
        "service.name": "kafka-rlm",
        "service.instance.id": service,
        "service.version": software_version(),
        "rlm.cluster.id": config.cluster_id,
    }
    return TracerProvider(
        sampler=ParentBasedTraceIdRatio(config.tracing_sample_ratio),
        resource=Resource.create(attributes),
        shutdown_on_exit=False,
    )
