"""A process that calls a NameNode whose connections break under many calls; prints how many failed.

If its threads wait for each other for ever, a C thread ends it with their stacks.
"""

import asyncio
import faulthandler
import os
import socket
import sys
import threading
import time
from contextlib import suppress

from kip405.errors import Unavailable
from rsm_plugins.hdfs.connection import CALLS_AT_ONCE, Connection
from rsm_plugins.hdfs.settings import HdfsSettings

CALLERS = 4 * CALLS_AT_ONCE
SECONDS = 4.0
HANGS_AFTER_SECONDS = 60.0


def breaks_every_connection() -> int:
    """The port of a server that reads a request and closes the connection; it lives in a process of
    its own.
    """
    listening = socket.create_server(("127.0.0.1", 0), backlog=500)
    port: int = listening.getsockname()[1]
    parent = os.getpid()
    if os.fork() == 0:
        os.closerange(0, 3)
        listening.settimeout(1.0)
        while os.getppid() == parent:
            with suppress(TimeoutError):
                accepted, _ = listening.accept()
                threading.Thread(target=_break, args=(accepted,), daemon=True).start()
        os._exit(0)
    listening.close()
    return port


def _break(accepted: socket.socket) -> None:
    with accepted, suppress(OSError):
        accepted.recv(1 << 16)
        time.sleep(0.02)


async def call_again_and_again(connection: Connection) -> int:
    """How many calls failed."""
    ends_at, failed = time.monotonic() + SECONDS, 0
    while time.monotonic() < ends_at:
        session = connection.session()
        try:
            await session.call("ask", "/x", lambda: session.client.get_file_info("/x"))  # noqa: B023
        except Unavailable:
            failed += 1
    return failed


async def main(port: int) -> int:
    settings = HdfsSettings(url=f"hdfs://127.0.0.1:{port}", root="/")
    connection = Connection(settings)
    return sum(await asyncio.gather(*(call_again_and_again(connection) for _ in range(CALLERS))))


if __name__ == "__main__":
    server_port = breaks_every_connection()
    faulthandler.dump_traceback_later(HANGS_AFTER_SECONDS, exit=True)
    sys.stdout.write(f"{asyncio.run(main(server_port))}\n")
