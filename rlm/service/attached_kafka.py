"""Builds where Kafka clients of an attached reader are answered, of its views and reads."""

import asyncio

from kip405.errors import Invalid
from rlm.clock import Clock
from rlm.config import AttachedConfig
from rlm.history_proxy.answers import HistoryAnswers, SharedQuota
from rlm.history_proxy.listener import HistoryListener
from rlm.proxy.tls_files import ProxyTls
from rlm.reading.throttle import ReadThrottle
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.service.certificates import FilesTogether, files_together
from rlm.service.clients import listener_tls
from rlm.service.metrics import ServiceMetrics
from rlm.workers.tls import tls_contexts


def build_kafka_listener(
    config: AttachedConfig,
    view: RemoteView,
    reading: RemoteReading,
    throttle: ReadThrottle,
    metrics: ServiceMetrics,
    clock: Clock,
    tasks: asyncio.TaskGroup,
) -> HistoryListener | None:
    """None without proxy.listen. Invalid: the files of TLS cannot be used."""
    listen, advertised = config.proxy_listen, config.proxy_advertised
    if listen is None or advertised is None:
        return None
    answers = HistoryAnswers(
        view=view,
        reading=reading,
        advertised=advertised,
        cluster_id=config.cluster_id,
        clock=clock,
        quota=SharedQuota(throttle),
        metrics=metrics,
    )
    try:
        contexts = tls_contexts(ProxyTls(listener=listener_tls(config))).listener
    except Invalid as error:
        raise Invalid(f"proxy.tls: {error}") from error
    return HistoryListener(
        at=listen,
        answers=answers,
        tasks=tasks,
        clock=clock,
        metrics=metrics,
        contexts=contexts,
        handshake_timeout_ms=config.proxy_handshake_timeout_ms,
    )


def kafka_files_together(config: AttachedConfig) -> tuple[FilesTogether, ...]:
    """Certificate and key of its listener, to be tried again after a renewal."""
    return files_together(ProxyTls(listener=listener_tls(config)))
