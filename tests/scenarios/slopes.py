"""Whether what was weighed over a long time stays as it is. Pure.

A slope is the median of the slopes between all pairs of samples (Theil and Sen): a third of the
samples may be anything, a pause of the machine or a client that comes back, and it is the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from tests.scenarios.weights import PID, Weighing

PER_S = 600.0
"""Slopes are by ten minutes."""
_LEAST_SAMPLES = 8

Sample = tuple[float, float]
"""When, in seconds since the beginning, and how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """`most` is what may come over the whole time that was judged, whatever its length: caches that
    fill, threads that pools make when they first need them. `percent` of the median may come beside
    it in every ten minutes.
    """

    most: float
    percent: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One component from its start to its end: what it weighed of one kind once it had settled."""

    name: str
    pid: float
    what: str
    samples: tuple[Sample, ...]

    @property
    def lasted_s(self) -> float:
        return self.samples[-1][0] - self.samples[0][0] if self.samples else 0.0

    @property
    def is_long_enough(self) -> bool:
        return len(self.samples) >= _LEAST_SAMPLES

    @property
    def usual(self) -> float:
        return median(value for _, value in self.samples)

    def usual_within(self, length_s: float) -> float:
        """Of its beginning."""
        until_s = self.samples[0][0] + length_s
        return median(value for at_s, value in self.samples if at_s <= until_s)

    @property
    def slope(self) -> float:
        """By ten minutes."""
        return slope(self.samples)

    def allowed(self, allowance: Allowance) -> float:
        """By ten minutes."""
        return allowance.most * PER_S / self.lasted_s + allowance.percent / 100 * self.usual


def slope(samples: Sequence[Sample]) -> float:
    """By ten minutes: the median over all pairs."""
    assert len(samples) >= _LEAST_SAMPLES, f"only {len(samples)} samples"
    return PER_S * median(
        (later - earlier) / (to_s - from_s)
        for (from_s, earlier), (to_s, later) in combinations(samples, 2)
    )


def spans(
    taken: Sequence[Weighing], what: str, *, settled_s: float, from_s: float = 0.0
) -> Iterator[Span]:
    """Of each component and process id, without what was taken before `from_s` or before it had
    lived for `settled_s`.
    """
    began: dict[tuple[str, float], float] = {}
    samples: dict[tuple[str, float], list[Sample]] = {}
    for weighing in taken:
        for name, weight in weighing.weights.items():
            if what not in weight:
                continue
            span = (name, weight.get(PID, 0))
            began.setdefault(span, weighing.at_s)
            found = samples.setdefault(span, [])
            if weighing.at_s >= max(from_s, began[span] + settled_s):
                found.append((weighing.at_s, weight[what]))
    for (name, pid), found in samples.items():
        yield Span(name=name, pid=pid, what=what, samples=tuple(found))


def grown(
    found: Sequence[Span], allowances: Mapping[str, Allowance], *, least_s: float
) -> list[str]:
    """What of those that were seen for so long grows by more than is allowed. The time must have
    several rounds of all that comes and goes beside it, and not one end of a round.
    """
    return [
        f"{one.name} {one.what}: {one.slope:+.2f} in ten minutes of {one.usual:.1f}, seen for "
        f"{one.lasted_s:.0f} s; allowed is {one.allowed(allowance):.2f}"
        for one in found
        if one.is_long_enough
        and one.lasted_s >= least_s
        and one.slope > one.allowed(allowance := allowances[one.what])
    ]


def grown_by_restarts(
    found: Sequence[Span], allowances: Mapping[str, Allowance], *, least_s: float
) -> list[str]:
    """What has more in the last of its spans of at least that length than in the first of them, at
    equal ages, by medians, beyond `most`.
    """
    rounds: dict[tuple[str, str], list[Span]] = {}
    for one in found:
        if one.is_long_enough and one.lasted_s >= least_s:
            rounds.setdefault((one.name, one.what), []).append(one)
    return [
        f"{name} {what}: {more:+.2f} from its first to its last start"
        for (name, what), spans_of_it in rounds.items()
        if len(spans_of_it) > 1
        and (more := spans_of_it[-1].usual_within(least_s) - spans_of_it[0].usual_within(least_s))
        > allowances[what].most
    ]
