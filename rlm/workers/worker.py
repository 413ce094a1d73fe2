"""A proxy worker: the process that serves Kafka clients on the sockets that it inherits (H24).

`python -m rlm.workers.worker FD...` reads its settings from standard input, one line of JSON, and
dies with its supervisor.
"""

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # what follows imports; see kip405.process

import asyncio
import json
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import structlog

from kafka_protocol.node_addresses import NodeAddress, NodeAddresses
from kip405.errors import Invalid
from kip405.open_files import raise_open_files_limit
from kip405.process import KEPT_BY_A_TASK_BYTES, collect_cycles_from_now, keep_freed_memory
from rlm.clock import Clock, SystemClock
from rlm.plans.client_activity import ClientTable
from rlm.plans.client_history import HistoryRules
from rlm.proxy.listening import Acceptor
from rlm.proxy.server import ProxyServer
from rlm.proxy.settings import ProxySettings
from rlm.proxy.tls_files import ProxyTls
from rlm.workers.counts import WorkerCounts
from rlm.workers.ending import Ending
from rlm.workers.inherited import (
    die_with_supervisor,
    first_line,
    ignore_replacement,
    json_line,
    known_fields,
    say_ready,
)
from rlm.workers.messages import client_message
from rlm.workers.quotas import WorkerQuota
from rlm.workers.records_memory import RecordsMemory
from rlm.workers.remote_core import RemoteCore
from rlm.workers.remote_tokens import RemoteTokens
from rlm.workers.tls import tls_contexts
from rlm.workers.v1 import core_pb2 as pb
from rsm_plugins.process.logs import change_log_level, configure_logs

log = structlog.get_logger(__name__)
_REPORT_MS = 1_000
_FILES_OF_A_CONNECTION = 6
"""Two sockets, and while the kernel moves its bytes, a duplicate of each and a pipe."""
_OTHER_FILES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """`records_memory_bytes`: for records of the remote tier (see RecordsMemory). `recent_ends`:
    how often this worker has ended by itself lately. `proxies`: last known addresses of proxies by
    node id (proxy.attach: rewrite), until the core has sent newer ones; None = none is rewritten.
    `own_topic_ids`: of the service's own topics as an earlier process has seen them, as hexadecimal
    text; none = not known.
    `token_mechanism`: by which clients with certificates are logged in; empty = they are not.
    """

    worker: int
    core_socket: str
    records_memory_bytes: int
    log_level: str
    log_format: str
    proxy: ProxySettings
    recent_ends: int = 0
    tls: ProxyTls = field(default_factory=ProxyTls)
    token_mechanism: str = ""
    proxies: Mapping[str, NodeAddress] | None = None
    own_topic_ids: tuple[str, ...] = ()

    def addresses(self) -> NodeAddresses | None:
        """See RemoteCore."""
        if self.proxies is None:
            return None
        replaced = {int(node): address for node, address in self.proxies.items()}
        return NodeAddresses(replaced=replaced, keeps_others=False)

    def line(self) -> bytes:
        """For a worker's standard input."""
        content = asdict(self)
        content["proxy"]["history"] = self.proxy.history.content()
        return json_line(content)

    @classmethod
    def of(cls, line: bytes) -> "WorkerSettings":
        """What a later version has added is left out: its default holds."""
        content = json.loads(line)
        proxy = known_fields(ProxySettings, content["proxy"])
        if "history" in proxy:
            proxy["history"] = HistoryRules.of(proxy["history"])
        content["proxy"] = ProxySettings(**proxy)
        if content.get("proxies") is not None:
            content["proxies"] = {
                node: NodeAddress(**known_fields(NodeAddress, one))
                for node, one in content["proxies"].items()
            }
        content["tls"] = ProxyTls.of(content.get("tls") or {})
        content["own_topic_ids"] = tuple(content.get("own_topic_ids") or ())
        return cls(**known_fields(cls, content))


class Worker:
    """All components of a worker."""

    def __init__(
        self, settings: WorkerSettings, listening: Sequence[socket.socket], clock: Clock
    ) -> None:
        """Invalid: the files of TLS cannot be used."""
        self._settings = settings
        self._clock = clock
        self._counts = WorkerCounts()
        self._clients = ClientTable(on_joined=self._report_soon, is_taken=True)
        self._is_reporting = False
        self._quota = WorkerQuota(self._counts, clock, self._report_soon)
        self._memory = RecordsMemory(settings.records_memory_bytes)
        self._core = RemoteCore(
            Path(settings.core_socket),
            worker=settings.worker,
            recent_ends=settings.recent_ends,
            clock=clock,
            memory=self._memory,
            greeted=self._greeted,
            waited=self._quota.answered,
            addresses=settings.addresses(),
        )
        self.proxy = ProxyServer(
            settings.proxy,
            self._core,
            self._core,
            clock,
            self._counts,
            self._quota,
            self._core.node_addresses,
            tls_contexts(settings.tls),
            self._core.own_topic_ids,
            self._clients,
            self._tokens(settings.token_mechanism),
            frozenset(map(bytes.fromhex, settings.own_topic_ids)),
        )
        self._acceptor = Acceptor(listening, self.proxy.has_room, self.proxy.serve, clock)
        self._accepting: asyncio.Task[None] | None = None
        self._ending = Ending(clock, worker=settings.worker)

    def _tokens(self, mechanism: str) -> RemoteTokens | None:
        if not mechanism:
            return None
        core = self._core
        return RemoteTokens(core.token, core.token_left, self._clock, mechanism=mechanism)

    async def run(self) -> None:
        """Serve until cancelled; then in-flight answers finish."""
        await self.proxy.begin()
        try:
            async with asyncio.TaskGroup() as group:
                self._accepting = group.create_task(self._acceptor.run())
                group.create_task(self._core.run())
                group.create_task(self._report_regularly())
                for watch in self.proxy.stalled_clients(lambda: self._memory.lacking_bytes):
                    group.create_task(watch.run())
                log.info("worker_started", worker=self._settings.worker)
                await self._until_stopped()
                await self._ending.drain(self.proxy.close)
                self._report()
                raise _Stopped
        except* _Stopped:
            self._ending.ended()

    async def _until_stopped(self) -> None:
        """Ready until SIGTERM or SIGINT; nothing is accepted after it."""
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        die_with_supervisor(loop)
        say_ready()
        await stopped.wait()
        self._ending.asked()
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        self._acceptor.close()

    def _greeted(self, hello: pb.CoreHello) -> None:
        self._quota.client_bytes_per_second = hello.client_bytes_per_second
        if hello.log_level:
            change_log_level(hello.log_level)
        self._clients.show_all()

    def _report_soon(self) -> None:
        if not self._is_reporting:
            self._is_reporting = True
            asyncio.get_running_loop().call_soon(self._report)

    def _report(self) -> None:
        """What was counted goes to the core, and is kept while there is none that takes it."""
        self._is_reporting = False
        if self._core.takes_reports:
            counts = self._counts.taken()
            counts.purgatory_size = self.proxy.purgatory.size
            counts.clients.extend(map(client_message, self._clients.taken()))
            self._core.report(counts)
        elif not self._core.is_connected:
            self._clients.forget_gone()

    async def _report_regularly(self) -> None:
        while True:
            await self._clock.sleep_ms(_REPORT_MS)
            self._report()


class _Stopped(Exception):
    """Ends the tasks of a worker."""


def main(arguments: list[str]) -> int:
    """Run one worker; returns the exit status."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a terminal; a reload comes from the core
    ignore_replacement()
    settings = WorkerSettings.of(first_line())
    configure_logs(level=settings.log_level, log_format=settings.log_format)
    keep_freed_memory(KEPT_BY_A_TASK_BYTES)
    collect_cycles_from_now()
    raise_open_files_limit(_FILES_OF_A_CONNECTION * settings.proxy.max_connections + _OTHER_FILES)
    listening = [socket.socket(fileno=int(descriptor)) for descriptor in arguments]
    try:
        asyncio.run(_run(settings, listening))
    except Invalid as error:  # the supervisor tries again, later and later
        log.error("worker_refused", worker=settings.worker, error=str(error))
        return 1
    return 0


async def _run(settings: WorkerSettings, listening: Sequence[socket.socket]) -> None:
    await Worker(settings, listening, SystemClock()).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
