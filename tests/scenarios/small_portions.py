"""`rlm restore` with small transactions, which says on standard output what it has committed.

Run as a program, for a test that kills it: PLUGIN_CONFIG BOOTSTRAP TOPIC NEW.
"""

import asyncio
import sys
from pathlib import Path

from kafka_clients.channel_security import plaintext
from kip405.addresses import Address
from rlm.clock import SystemClock
from rlm.download.sources import StoreSource
from rlm.download.verified import VerifiedReads
from rlm.restore.brokers import Brokers
from rlm.restore.run import PartitionReport, Restore, Wanted
from rsm_plugins.process.config import load_settings
from rsm_plugins.store_kinds import store_kind
from rsm_plugins.threads import FileThreads

PORTION_BYTES = 100_000


def say(report: PartitionReport) -> None:
    print(report.progress, flush=True)


async def main(plugin_config: str, bootstrap: str, topic: str, new: str) -> None:
    threads, clock = FileThreads(4), SystemClock()
    settings = load_settings(Path(plugin_config))
    store = (await store_kind(settings.kind).open(settings.store, threads)).manager
    addresses, security = [Address.parse(bootstrap)], plaintext()
    brokers = Brokers(addresses, client_id="killed", security=security, clock=clock)
    work = Restore(
        VerifiedReads(StoreSource(store, threads=threads), clock=clock, threads=threads),
        brokers,
        clock=clock,
        threads=threads,
        report=say,
        portion_bytes=PORTION_BYTES,
    )
    await work.run(Wanted(topic=topic, to_topic=new))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
