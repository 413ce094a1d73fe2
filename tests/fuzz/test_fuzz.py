"""The fuzzer in a process of its own, whose memory nobody else has used: as much as CI has time
for, ten million inputs in `make long`. RLM_FUZZ_CPU_S: other seconds.
"""

import os
import random
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable

import pytest

from kafka_protocol.apis import LIST_OFFSETS
from kafka_protocol.fetch import scan_fetch_request
from kafka_protocol.frames import parse_request_header
from kafka_protocol.primitives import encode_uvarint
from kafka_protocol.schema import decode
from tests.fuzz import run
from tests.fuzz.__main__ import KIND
from tests.fuzz.case import READ, REFUSED, Case
from tests.fuzz.run import INPUTS_OF_A_SEED, TARGETS, Growth, run_portion, run_seed
from tests.simulation.many_seeds import Collected, results_file, run_all
from tests.simulation.seeds import Failure

_CPU_S = os.environ.get("RLM_FUZZ_CPU_S", "8")
_TEN_MILLION = range(10_000_000 // INPUTS_OF_A_SEED)
_MOST_TIMES = 100
_READ_BYTES = 64 << 10


def test_no_input_crashes_hangs_or_costs_much() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--cpu-s", _CPU_S]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(8 * 3_600)
def test_ten_million_inputs() -> None:
    """Goes on with the newest file of results, where that lacks some of the seeds."""
    path = results_file(_TEN_MILLION, KIND)
    workers = os.cpu_count() or 1
    found = run_all(
        _TEN_MILLION, path, workers=workers, report=lambda _: None, run=run_portion, kind=KIND
    )
    assert found == {}
    assert Collected.read(path, KIND).grown() == []


def test_every_target_reads_some_inputs_and_refuses_others() -> None:
    """Else mutations would be too rough to come far, or too mild to show anything."""
    said: Counter[str] = Counter()
    for name, (target, _) in TARGETS.items():
        for number in range(60 if name != "tls records" else 12):
            said[f"{name}: {target(_case(number))}"] += 1
    assert set(said) == {f"{name}: {became}" for name in TARGETS for became in (READ, REFUSED)}


def _case(number: int) -> Case:
    return Case(rng=random.Random(number), corpus=run._corpus())


def _hangs(_: Case) -> str:
    while True:
        pass


_kept: list[bytearray] = []


def _grows(_: Case) -> str:
    _kept.append(bytearray(b"x") * (100 << 20))
    return READ


def _crashes(_: Case) -> str:
    raise KeyError("nobody expects it")


@pytest.mark.parametrize(
    ("target", "found"), [(_hangs, "Hang"), (_grows, "memory grew"), (_crashes, "KeyError")]
)
def test_a_target_that_is_broken_is_noticed(
    target: Callable[[Case], str], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target is _hangs:  # the others may first read what cases are made of
        monkeypatch.setattr(run, "MOST_CPU_S", 0.2)
    peaks = iter((0, 100 << 20))
    if target is _grows:  # other tests of this process may have had more memory already
        monkeypatch.setattr(run, "peak_bytes", lambda: next(peaks))
    with pytest.raises(Failure, match=found):
        run_seed(1, {"broken": (target, 1)})


def test_a_leak_that_no_seed_shows_is_noticed_over_portions() -> None:
    growth = Growth()
    sizes_mib = {100: 300, 200: 200, 300: 363, 400: 364, 500: 310}
    found = [growth.found(size << 20, seed) for seed, size in sizes_mib.items()]
    words = f"64 MiB more since its first portion, up to seed {list(sizes_mib)[3]}"
    assert found == [None, None, None, words, None]


def test_a_portion_says_what_its_process_weighs(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytearray] = []

    def leaks(_: int) -> Counter[str]:
        kept.append(bytearray(b"x") * (10 << 20))
        return Counter(read=1)

    monkeypatch.setattr(run, "run_seed", leaks)
    monkeypatch.setattr(run, "warm_up", lambda: None)
    monkeypatch.setattr(run, "_growth", Growth())
    portions = [run_portion(range(first, first + 4)) for first in (0, 4, 8)]
    assert [bool(one.grown) for one in portions] == [False, False, True]
    assert all((one.peak_mib or 0) > 40 for one in portions)


def _dense(key: int, head: bytes, tail: bytes) -> bytes:
    """A request of topics without a name and without partitions, 3 bytes each."""
    count = _READ_BYTES // 3
    header = key.to_bytes(2, "big") + b"\0\x0c" + b"\0\0\0\1\xff\xff\0"
    return header + head + encode_uvarint(count + 1) + b"\1\1\0" * count + tail


def _scanned() -> object:
    frame = _dense(1, bytes(4 + 12 + 1 + 8), b"\1\1\0")
    return scan_fetch_request(frame, parse_request_header(frame))


def _decoded() -> object:
    frame = _dense(2, bytes(4 + 1), bytes(5))
    position = parse_request_header(frame).body_offset
    return decode(LIST_OFFSETS.request, 7, frame, position)


@pytest.mark.parametrize("read", [_scanned, _decoded])
def test_h36_the_densest_request_costs_what_the_setting_says(read: Callable[[], object]) -> None:
    """proxy.read.request.max.bytes is by this."""
    tracemalloc.start()
    try:
        kept = read()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert kept is not None
    assert 10 * _READ_BYTES < peak_bytes < _MOST_TIMES * _READ_BYTES
