"""Builds what answers Kafka clients of an attached reader, of its views and reads."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kip405.errors import Invalid
from rlm.clock import Clock
from rlm.config import AttachedConfig
from rlm.history_proxy.answers import NODE_ID, HistoryAnswers, SharedQuota
from rlm.history_proxy.committed import CommittedOffsets
from rlm.history_proxy.coordinator import GroupCoordinator
from rlm.history_proxy.listener import HistoryListener
from rlm.proxy.tls_files import ProxyTls
from rlm.reading.throttle import ReadThrottle
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.service.certificates import FilesTogether, files_together
from rlm.service.clients import listener_tls
from rlm.service.metrics import ServiceMetrics
from rlm.workers.tls import tls_contexts
from rsm_plugins.threads import Threads


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedKafka:
    """`start` it, keep `background_tasks` running, and `close` the listener at the end."""

    listener: HistoryListener
    groups: GroupCoordinator
    committed: CommittedOffsets

    def background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What groups need."""
        return {"group members": self.groups.run, "group offsets": self.committed.run}


def build_kafka(
    config: AttachedConfig,
    threads: Threads,
    view: RemoteView,
    reading: RemoteReading,
    throttle: ReadThrottle,
    metrics: ServiceMetrics,
    clock: Clock,
    tasks: asyncio.TaskGroup,
) -> AttachedKafka | None:
    """None without proxy.listen. Invalid: the files of TLS cannot be used. Corrupt, Unavailable:
    those of groups cannot be read.
    """
    listen, advertised = config.proxy_listen, config.proxy_advertised
    if listen is None or advertised is None:
        return None
    committed = CommittedOffsets(config.state_dir / f"{config.cluster_id}-groups", threads)
    committed.load()
    groups = GroupCoordinator(
        view=view, committed=committed, advertised=advertised, node_id=NODE_ID, clock=clock
    )
    answers = HistoryAnswers(
        view=view,
        reading=reading,
        advertised=advertised,
        cluster_id=config.cluster_id,
        clock=clock,
        quota=SharedQuota(throttle),
        metrics=metrics,
        groups=groups,
    )
    try:
        contexts = tls_contexts(ProxyTls(listener=listener_tls(config))).listener
    except Invalid as error:
        raise Invalid(f"proxy.tls: {error}") from error
    listener = HistoryListener(
        at=listen,
        answers=answers,
        tasks=tasks,
        clock=clock,
        metrics=metrics,
        contexts=contexts,
        handshake_timeout_ms=config.proxy_handshake_timeout_ms,
    )
    return AttachedKafka(listener=listener, groups=groups, committed=committed)


def kafka_files_together(config: AttachedConfig) -> tuple[FilesTogether, ...]:
    """Certificate and key of its listener, to be tried again after a renewal."""
    return files_together(ProxyTls(listener=listener_tls(config)))
