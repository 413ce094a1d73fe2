"""`rlm serve` with proxy workers: which processes there are, and their settings (H24)."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from rlm.clock import SystemClock
from rlm.config import ServiceConfig
from rlm.config.environment import withheld_variables
from rlm.config.machine import usable_processors, worker_count
from rlm.proxy.listening import listen
from rlm.service.clients import core_socket, proxy_settings, proxy_tls
from rlm.service.lifetime import configure_service_logs
from rlm.service.metadata import remembered_own_topics
from rlm.service.node_addresses import remembered_proxies
from rlm.workers.children import ChildPlan
from rlm.workers.inherited import CoreSettings
from rlm.workers.supervisor import WORKER_COMMAND, Supervisor, run_supervised
from rlm.workers.tls import tls_contexts
from rlm.workers.worker import WorkerSettings

_CORE_COMMAND = (sys.executable, "-P", "-m", "rlm.cli.main", "serve", "--as-core", "--config")
STOP_MARGIN_MS = 10_000
_LEAST_RECORDS_BYTES = 64 << 20
_RECORDS_SHARE = 4
"""All workers together may hold so much of what the core may keep of remote records."""


def run(config: ServiceConfig, path: Path) -> bool:
    """Serve until SIGTERM or SIGINT; False where the core refused its configuration, which it has
    said. Invalid: the proxy cannot listen, or the files of its TLS cannot be used.
    """
    configure_service_logs(level=config.log_level, log_format=config.log_format)
    address = config.proxy_listen
    stop_ms = config.shutdown_timeout_ms + STOP_MARGIN_MS
    count = worker_count(config.proxy_workers, usable_processors())
    tls_contexts(proxy_tls(config))  # what the workers could not use is refused here, once
    with listen(address.host, address.port) as listening:
        core = ChildPlan(
            name="core",
            command=(*_CORE_COMMAND, str(path)),
            first_line=partial(_core_line, count),
            stop_ms=stop_ms,
            may_refuse=True,
        )
        descriptors = tuple(one.fileno() for one in listening)
        workers = [
            ChildPlan(
                name=f"worker {number}",
                command=(*WORKER_COMMAND, *map(str, descriptors)),
                first_line=partial(_worker_line, config, number, count),
                stop_ms=stop_ms,
                descriptors=descriptors,
                withheld=withheld_variables(),
            )
            for number in range(count)
        ]
        return run_supervised(lambda: Supervisor(core=core, workers=workers, clock=SystemClock()))


def _core_line(workers: int, recent_ends: int) -> bytes:
    return CoreSettings(workers=workers, recent_ends=recent_ends).line()


def _worker_line(config: ServiceConfig, number: int, count: int, recent_ends: int) -> bytes:
    settings = worker_settings(config, number, count)
    proxies = remembered_proxies(config) if config.rewrites_addresses else None
    rows = None if proxies is None else {str(node): one for node, one in proxies.items()}
    own = tuple(sorted(topic_id.raw.hex() for topic_id in remembered_own_topics(config)))
    return replace(settings, recent_ends=recent_ends, proxies=rows, own_topic_ids=own).line()


def worker_settings(config: ServiceConfig, number: int, count: int) -> WorkerSettings:
    """Each of `count` workers may have its share of what the setting allows for all."""
    proxy = proxy_settings(config)

    def share(connections: int) -> int:
        return max(1, (connections + number) // count)

    records_bytes = config.fetch_chunk_cache_bytes // _RECORDS_SHARE // count
    return WorkerSettings(
        worker=number,
        core_socket=str(core_socket(config)),
        records_memory_bytes=max(_LEAST_RECORDS_BYTES, records_bytes),
        log_level=config.log_level,
        log_format=config.log_format,
        proxy=replace(
            proxy,
            max_connections=share(proxy.max_connections),
            max_connections_per_address=share(proxy.max_connections_per_address),
            max_connections_per_principal=share(proxy.max_connections_per_principal),
            memory_max_bytes=proxy.memory_max_bytes // count,
        ),
        tls=proxy_tls(config),
        token_mechanism=config.proxy_token_sasl_mechanism if config.has_client_tokens else "",
    )
