"""What a target is given, and how it says what became of an input."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.corpus import REQUEST, RESPONSE, Corpus, Sample
from tests.fuzz.mutations import mutated

READ, REFUSED = "read", "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input's randomness, and the real frames."""

    rng: random.Random
    corpus: Corpus

    def damaged(self, sample: Sample) -> bytes:
        """The frame of the sample, mutated, perhaps with parts of another one."""
        other = self.corpus.any(self.rng, sample.kind)
        return mutated(sample.frame, self.rng, other.frame)


Target = Callable[[Case], str]
"""Tries one input: READ or REFUSED. Anything that is raised is a finding."""

__all__ = ["READ", "REFUSED", "REQUEST", "RESPONSE", "Case", "Target"]
