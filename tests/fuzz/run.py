"""Runs the inputs of a seed: no error but the named one, no hang, no growth of memory; none over
very many seeds either.

`python -m tests.fuzz --seeds 8..9` repeats one seed.
"""

import contextlib
import gc
import random
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import FrameType

import psutil

from tests.fuzz import answers, codecs, fetches, streams, tls
from tests.fuzz.case import Case, Target
from tests.fuzz.corpus import Corpus
from tests.simulation import many_seeds
from tests.simulation.many_seeds import Portion
from tests.simulation.seeds import Failure

INPUTS_OF_A_SEED = 200
MOST_CPU_S = 2.0
"""One input has at most 60 KiB."""
MOST_GROWTH_BYTES = 64 << 20
"""Of one seed, at its worst; and of a process that has run one portion and runs others."""

TARGETS: Mapping[str, tuple[Target, float]] = {
    "any message": (codecs.any_message, 20),
    "offsets": (codecs.offsets, 8),
    "sasl": (codecs.sasl, 5),
    "fetch requests": (fetches.requests, 12),
    "fetch answers": (fetches.answers, 15),
    "acks": (answers.acks, 6),
    "produce answers": (answers.produced, 8),
    "addresses": (answers.addresses, 8),
    "node endpoints": (answers.endpoints, 5),
    "versions": (answers.versions, 4),
    "client's stream": (streams.client_stream, 10),
    "broker's stream": (streams.broker_stream, 10),
    "tls records": (tls.records, 0.3),
}
"""By name, with how often each has its turn."""


class Hang(Exception):
    """An input that takes too long, or for ever."""


@cache
def _corpus() -> Corpus:
    return Corpus()


def run_seed(seed: int, targets: Mapping[str, tuple[Target, float]] = TARGETS) -> Counter[str]:
    """How many inputs each target had, and what became of them. Failure: what was found."""
    said: Counter[str] = Counter()
    names = list(targets)
    weights = [weight for _, weight in targets.values()]
    choice = random.Random(seed)
    before = peak_bytes()
    for number in range(INPUTS_OF_A_SEED):
        (name,) = choice.choices(names, weights)
        rng = random.Random(f"{seed} {number} {name}")
        try:
            with _no_longer_than(MOST_CPU_S):
                became = targets[name][0](Case(rng=rng, corpus=_corpus()))
            assert peak_bytes() - before < MOST_GROWTH_BYTES, "memory grew"
        except Exception as error:
            trace = traceback.format_exc(limit=-4).splitlines()
            broken = AssertionError(f"{name}, input {number}: {error!r}")
            raise Failure(seed, trace, broken) from error
        said[f"{name}: {became}"] += 1
    return said


@dataclass(slots=True)
class Growth:
    """Of this process: after its first portion it has made the frames that it keeps."""

    first_bytes: int | None = None

    def found(self, now_bytes: int, up_to_seed: int) -> str | None:
        """In words, where the process has grown too much since it was looked at first."""
        if self.first_bytes is None:
            self.first_bytes = now_bytes
        grown_bytes = now_bytes - self.first_bytes
        if grown_bytes < MOST_GROWTH_BYTES:
            return None
        return f"{grown_bytes >> 20} MiB more since its first portion, up to seed {up_to_seed}"


_growth = Growth()


def run_portion(seeds: range) -> Portion:
    """Seeds in this process, whatever is found."""
    warm_up()
    portion = many_seeds.run_portion(seeds, run_seed)
    return _weighed(portion, _growth)


def _weighed(portion: Portion, growth: Growth) -> Portion:
    grown = growth.found(resident_bytes(), portion.seeds.stop)
    return replace(portion, peak_mib=peak_bytes() >> 20, grown=grown)


def resident_bytes() -> int:
    """The memory of this process without its garbage."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    """The most memory that this process ever had (Linux counts KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@cache
def warm_up() -> None:
    """Make frames that all seeds share, so that they are no growth of one. What is there then is
    kept to the end, and the collector of garbage need not look at it again and again.
    """
    for seed in range(-3, 0):
        with contextlib.suppress(Failure):
            run_seed(seed)
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _no_longer_than(cpu_s: float) -> Iterator[None]:
    """CPU time of this process, as other processes may leave little of the machine to it."""

    def on_time(_: int, __: FrameType | None) -> None:
        raise Hang(f"more than {cpu_s} s of CPU")

    before = signal.signal(signal.SIGVTALRM, on_time)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run_for(cpu_s: float, first_seed: int) -> Portion:
    """As many seeds as that much CPU time has room for, at least one; none after a finding."""
    warm_up()
    growth = Growth(first_bytes=resident_bytes())
    began_s = time.process_time()
    seed, said = first_seed, Counter[str]()
    failures: dict[int, str] = {}
    while not failures:
        portion = many_seeds.run_portion(range(seed, seed + 1), run_seed)
        said += portion.events
        failures |= portion.failures
        seed += 1
        if time.process_time() - began_s >= cpu_s:
            break
    took_s = time.process_time() - began_s
    seeds = range(first_seed, seed)
    return _weighed(Portion(seeds=seeds, cpu_s=took_s, events=said, failures=failures), growth)
