"""The threads of one service: a pool for each kind of work, so that none starves another (G6).

Copies read and hash whole segments for minutes, a snapshot must not wait for that, and a disk that
hangs must not stop what needs no disk. Nothing here runs in asyncio's default executor, whose
threads are shared by all and waited for at the end of the process. What hangs is told by `hung`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rlm.config import CommonConfig, ServiceConfig
from rsm_plugins.threads import HungWork, Threads

_EVIDENCE_THREADS = 4
_DISK_CACHE_THREADS = 2
_OTHER_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceThreads:
    """Pools by what they do; a thread is made when there is work for it.

    copies: reading and hashing segments. snapshots: scans of the broker's disk, for tasks and
    barriers. evidence: what stores hand over as files before a trim. reads: what readers wait for.
    disk_cache: chunks in files. other: small files of our own, free space.
    """

    copies: Threads
    snapshots: Threads
    evidence: Threads
    reads: Threads
    disk_cache: Threads
    other: Threads

    def hung(self) -> tuple[HungWork, ...]:
        """One for each pool with threads that hang now."""
        return tuple(found for pool in self.pools() if (found := pool.hung()) is not None)

    def pools(self) -> tuple[Threads, ...]:
        return (
            self.copies,
            self.snapshots,
            self.evidence,
            self.reads,
            self.disk_cache,
            self.other,
        )


@contextmanager
def service_threads(config: CommonConfig) -> Iterator[ServiceThreads]:
    """The pools of a service in either role; closed without waiting for what hangs."""
    hang_ms = config.threads_hang_ms
    of_broker = config if isinstance(config, ServiceConfig) else None
    made = ServiceThreads(
        copies=Threads(
            "copies",
            of_broker.remote_log_manager_copier_thread_pool_size if of_broker else 1,
            hang_ms=of_broker.copy_deadline_ms if of_broker else hang_ms,
        ),
        snapshots=Threads(
            "snapshots", of_broker.log_dir_scan_threads if of_broker else 1, hang_ms=hang_ms
        ),
        evidence=Threads("evidence", _EVIDENCE_THREADS, hang_ms=hang_ms),
        reads=Threads("reads", config.remote_log_reader_threads, hang_ms=hang_ms),
        disk_cache=Threads("disk-cache", _DISK_CACHE_THREADS, hang_ms=hang_ms),
        other=Threads("other", _OTHER_THREADS, hang_ms=hang_ms),
    )
    try:
        yield made
    finally:
        for pool in made.pools():
            pool.close()
