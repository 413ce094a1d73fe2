"""The processes of a service with proxy workers, and which client is connected to which worker."""

from urllib.error import URLError

import psutil

from tests.scenarios.cluster import Cluster
from tests.scenarios.test_h38_problems import Operator


class ServiceProcesses:
    """Of the one broker of a sandbox. Clients are known by their ports, as the kernel shows them: a
    client that had to reconnect has another one.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.sandbox = cluster.sandbox
        self._operator = Operator(cluster)
        self._port = int(self.sandbox.bootstrap.rpartition(":")[2])

    @property
    def supervisor(self) -> psutil.Process:
        return psutil.Process(self.sandbox.json["brokers"][0]["rlm_pid"])

    @property
    def core(self) -> psutil.Process:
        return self._children("--as-core")[0]

    @property
    def pids(self) -> frozenset[int]:
        """Of core and workers, as many as run now."""
        children = (*self._children("--as-core"), *self.workers)
        return frozenset(one.pid for one in children)

    @property
    def workers(self) -> list[psutil.Process]:
        return self._children("rlm.workers.worker")

    def _children(self, word: str) -> list[psutil.Process]:
        return sorted(
            (one for one in self.supervisor.children() if word in _command(one)),
            key=lambda one: one.pid,
        )

    def is_ready(self) -> bool:
        """Whether the core says so."""
        try:
            self._operator.get("/readyz")
        except (URLError, OSError):
            return False
        return True

    def metrics(self) -> str:
        return self._operator.get("/metrics")

    def clients(self) -> dict[int, frozenset[int]]:
        """The ports of all clients, by the pid of their worker."""
        return {
            worker.pid: frozenset(
                one.raddr.port
                for one in worker.net_connections(kind="tcp")
                if one.status == psutil.CONN_ESTABLISHED and one.laddr.port == self._port
            )
            for worker in self.workers
        }


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []
