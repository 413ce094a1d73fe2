"""A plain parallel uploader on the same client library as the plugin: what a copy is compared with.

`python -m bench.stores.uploader PLUGIN_YAML CONCURRENCY` reads names of files from standard input,
puts each as one object, prints a JSON line, and removes them again. No checksums of its own, no
indexes, no manifest, no ledger.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rsm_plugins.process.config import PluginSettings, load_settings

PREFIX = "bench-plain"
Put = Callable[[str, bytes], Awaitable[None]]


async def main() -> None:
    """Only the uploads are timed."""
    settings = load_settings(Path(sys.argv[1]))
    files = [Path(line.strip()) for line in sys.stdin if line.strip()]
    run = {"s3": _with_s3, "hdfs": _with_hdfs}[settings.kind]
    print(json.dumps(await run(settings, files, int(sys.argv[2]))), flush=True)


async def _with_s3(settings: PluginSettings, files: list[Path], at_once: int) -> dict[str, Any]:
    from rsm_plugins.s3.calls import Connection
    from rsm_plugins.s3.settings import s3_settings

    values = s3_settings(settings.store)
    connection = Connection(values)
    try:
        client = await connection.client()

        async def put(key: str, data: bytes) -> None:
            await client.put_object(Bucket=values.bucket, Key=key, Body=data)

        await client.head_bucket(Bucket=values.bucket)
        result = await _timed(put, files, at_once)
        for number in range(len(files)):
            await client.delete_object(Bucket=values.bucket, Key=_key(number))
    finally:
        await connection.close()
    return result


async def _with_hdfs(settings: PluginSettings, files: list[Path], at_once: int) -> dict[str, Any]:
    os.environ["HADOOP_USER_NAME"] = settings.store["rsm.config.hdfs.user"]
    from hdfs_native import Client, WriteOptions

    client = Client(settings.store["rsm.config.hdfs.url"])
    root = f"{settings.store['rsm.config.root']}/{PREFIX}"
    client.mkdirs(root, create_parent=True)

    def write(key: str, data: bytes) -> None:
        with client.create(f"{root}/{Path(key).name}", WriteOptions(overwrite=True)) as writer:
            writer.write(data)

    async def put(key: str, data: bytes) -> None:
        await asyncio.to_thread(write, key, data)

    result = await _timed(put, files, at_once)
    client.delete(root, recursive=True)
    return result


async def _timed(put: Put, files: list[Path], at_once: int) -> dict[str, Any]:
    slots = asyncio.Semaphore(at_once)
    sizes: list[int] = []

    async def one(number: int, path: Path) -> None:
        async with slots:
            data = await asyncio.to_thread(path.read_bytes)
            await put(_key(number), data)
            sizes.append(len(data))

    began, used = time.monotonic(), _cpu()
    await asyncio.gather(*(one(number, path) for number, path in enumerate(files)))
    seconds = time.monotonic() - began
    return {"seconds": seconds, "bytes": sum(sizes), "cpu_s": _cpu() - used}


def _key(number: int) -> str:
    return f"{PREFIX}/{number}"


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    asyncio.run(main())
