"""The benchmark of stores: for each store a sandbox, copies of backlogs, cold reads, first records.

One topic of a shape is read by all; before each read the service is restarted, so its caches are
empty, while broker, plugin and its connections stay warm, and so does the page cache of all. Copies
run with the sandbox's short intervals, reads with those of production.
"""

from dataclasses import asdict
from typing import Any

from bench.machine import commit, load_in_words, machine_in_words
from bench.plan import PRODUCER_SEED
from bench.stores.copies import measure_pair, prepare_backlogs
from bench.stores.first_record import measure_first_records
from bench.stores.lab import Lab, lab
from bench.stores.options import StoreOptions, order_of_delays
from bench.stores.reads import measure_read
from bench.stores.report import (
    CopyPair,
    Figures,
    FirstRecord,
    ReadRun,
    copy_line,
    read_line,
    summary,
)
from bench.topics import Progress, prepare

CACHES = (
    "page cache warm for all (data just written; nothing dropped); service restarted before each "
    "read and each row of first records, so its caches are empty; broker, JIT, plugin and its "
    "connections to the store warm"
)
CACHES_WARM = (
    "page cache warm for all (data just written; nothing dropped); service with a cache on disk, "
    "not restarted, and the same topic is read once before each read without being counted"
)
WIRE = (
    "S3 through bench/stores/wire.py: a round trip's delay is added to every request of a "
    "connection, bytes pass unhindered; its own CPU (0.4 s/GB where toxiproxy takes 1.9) is a role "
    "of its own"
)
_WARM_UP_PASS = 0


def run_stores(options: StoreOptions, progress: Progress) -> tuple[Figures, dict[str, Any]]:
    """All that was asked for; the figures, and the result as JSON values."""
    progress(f"machine: {machine_in_words()}; load {load_in_words()}")
    measured: list[Figures] = []
    versions: list[str] = []
    for store in options.stores:
        with lab(store, options, progress) as running:
            versions.append(running.sandbox.dist.version)
            measured.append(_measure(running, options, progress))
    figures = Figures(
        reads=tuple(run for one in measured for run in one.reads),
        first_records=tuple(row for one in measured for row in one.first_records),
        copies=tuple(pair for one in measured for pair in one.copies),
    )
    return figures, _document(options, figures, versions[0])


def _measure(running: Lab, options: StoreOptions, progress: Progress) -> Figures:
    copies = _copies(running, options, progress)
    if not (options.passes or options.first_records):
        return Figures(reads=(), first_records=(), copies=tuple(copies))
    running.delay(0)
    shares = prepare(running.sandbox, options.read, progress)
    progress(f"remote share of records: {shares}")
    running.production_intervals()
    reads = _reads(running, options, progress)
    return Figures(
        reads=tuple(reads),
        first_records=tuple(_first_records(running, options, progress)),
        copies=tuple(copies),
    )


def _copies(running: Lab, options: StoreOptions, progress: Progress) -> list[CopyPair]:
    """Without added latency, as the figures to beat were taken; pair 0 warms up."""
    numbers = range(_WARM_UP_PASS if options.warm_up else 1, options.copy_pairs + 1)
    prepare_backlogs(running, options, numbers, progress)
    pairs = []
    for number in numbers:
        pair = measure_pair(running, number, 0)
        progress(copy_line(pair) + ("  warm-up: not counted" if number == 0 else ""))
        if number:
            pairs.append(pair)
    return pairs


def _reads(running: Lab, options: StoreOptions, progress: Progress) -> list[ReadRun]:
    runs = []
    first = _WARM_UP_PASS if options.warm_up else 1
    for number in range(first, options.passes + 1):
        delays = order_of_delays(options.delays_of(running.store), number)
        for delay_ms in delays[:1] if number == _WARM_UP_PASS else delays:
            for shape in options.read.shapes:
                run = measure_read(running, options, shape, delay_ms=delay_ms, number=number)
                counts = number != _WARM_UP_PASS
                progress(read_line(run) + ("" if counts else "  warm-up: not counted"))
                runs += [run] if counts else []
    return runs


def _first_records(running: Lab, options: StoreOptions, progress: Progress) -> list[FirstRecord]:
    rows: list[FirstRecord] = []
    if options.warm:  # they are of a cold read
        return rows
    for delay_ms in options.delays_of(running.store):
        found = measure_first_records(
            running,
            partitions=max(options.partitions),
            delay_ms=delay_ms,
            count=options.first_records,
        )
        progress(f"first records {running.store} +{delay_ms} ms: {[row.ms for row in found]} ms")
        rows += found
    return rows


def _document(options: StoreOptions, figures: Figures, kafka: str) -> dict[str, Any]:
    return {
        "v": 1,
        "kind": "bench",
        "name": "stores",
        "commit": commit(),
        "machine": machine_in_words(),
        "kafka": kafka,
        "seeds": {"producer values (SplittableRandom)": PRODUCER_SEED},
        "options": asdict(options),
        "caches": CACHES_WARM if options.warm else CACHES,
        "wire": WIRE,
        "cpu": "user + system seconds per 1e9 bytes of values over the consumer's process life",
        **summary(figures),
        "read_runs": [asdict(run) for run in figures.reads],
        "first_record_rows": [asdict(row) for row in figures.first_records],
        "copy_pairs": [asdict(pair) for pair in figures.copies],
    }
