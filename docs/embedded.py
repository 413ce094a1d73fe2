"""python3 embedded.py SETTINGS TOPIC OTHER: be a broker's service, and tier one topic of two."""

import asyncio
import sys
from pathlib import Path

from kip405.ids import TopicPartition
from rlm.config import load
from rlm.service.lifetime import configure_service_logs
from rlm.service.remote_log_manager import RemoteLogManager


async def main(settings: Path, topic: str, other: str) -> None:
    service = str(load(settings).grpc_listen)

    async def rlm(*words: str) -> None:
        command = (sys.executable, "-m", "rlm.cli.main", *words, "--address", service)
        process = await asyncio.create_subprocess_exec(*command)
        if await process.wait():
            sys.exit(f"rlm {words[0]} has failed")

    configure_service_logs(level="error", log_format="logfmt")
    partition = TopicPartition(topic, 0)
    async with RemoteLogManager(settings) as manager:
        for name in (topic, other):
            await rlm("topics", "enable", name, "--trim", "--local-retention-bytes", "1")
        print("is led and enabled:", await manager.add_partitions([partition]))
        print("left out:", *sorted(map(str, manager.left_out())))
        await rlm("copy", topic, "--keep-local", "0")

        found = await manager.read(partition, 0)
        first = int.from_bytes(found.records[:8], "big")  # a batch begins with its first offset
        print(f"read {len(found.records)} bytes, offsets {first} to {found.next_offset - 1}")
        print(f"the remote log: {found.log_start_offset} to {found.remote_next_offset - 1}")
        end = await manager.read(partition, found.remote_next_offset)
        print("at its end:", end.records, end.next_offset == found.remote_next_offset)

        await manager.remove_partitions([partition])
    print("shut down")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
