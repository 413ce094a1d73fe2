"""The threads of one service: a pool for each kind of work, so that none starves another (G6).

Copies read and hash whole segments for minutes, and a snapshot must not wait for that. A disk that
hangs must not stop work that needs no disk. Nothing here runs in asyncio's default executor: all of
a process shares its threads, and the process waits for them when it ends. `hung` reports the
threads that hang.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rlm.config import CommonConfig, ServiceConfig
from rsm_plugins.threads import HungWork, Threads

_EVIDENCE_THREADS = 4
_DISK_CACHE_THREADS = 2
_REMOTE_INDEX_THREADS = 1
_REMOTE_INDEX_PENDING = 256
"""Each may hold an indexes object."""
_OTHER_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceThreads:
    """Pools by kind of work; threads are created on demand.

    copies: reading and hashing segments. snapshots: scans of the broker's disk, for tasks and
    barriers. evidence: files that stores return before a trim, and what a deep verification
    reads. reads: what readers wait for. disk_cache: chunks in files. remote_index: index entries of
    remote segments in files. other: small files of our own, free space.
    """

    copies: Threads
    snapshots: Threads
    evidence: Threads
    reads: Threads
    disk_cache: Threads
    remote_index: Threads
    other: Threads

    def hung(self) -> tuple[HungWork, ...]:
        """One entry for each pool that has hanging threads now."""
        return tuple(found for pool in self.pools() if (found := pool.hung()) is not None)

    def pools(self) -> tuple[Threads, ...]:
        return (
            self.copies,
            self.snapshots,
            self.evidence,
            self.reads,
            self.disk_cache,
            self.remote_index,
            self.other,
        )


@contextmanager
def service_threads(config: CommonConfig) -> Iterator[ServiceThreads]:
    """The pools of a service in either role; closed without waiting for hanging threads."""
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
        remote_index=Threads(
            "remote-index",
            _REMOTE_INDEX_THREADS,
            hang_ms=hang_ms,
            max_pending=_REMOTE_INDEX_PENDING,
        ),
        other=Threads("other", _OTHER_THREADS, hang_ms=hang_ms),
    )
    try:
        yield made
    finally:
        for pool in made.pools():
            pool.close()
