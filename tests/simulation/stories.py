"""Which stories a seed tells beside its events: of topics that end, or of what operators decide.

A seed has one story, or two after each other; most have none.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tests.simulation.decisions import disabled
from tests.simulation.discards import discarded
from tests.simulation.frozen import frozen
from tests.simulation.replaced import replaced
from tests.simulation.topic_events import STORIES

if TYPE_CHECKING:
    from tests.simulation.world import World

Story = Callable[["World", random.Random], Awaitable[None]]
_TOPICS_END_IN = 0.3
"""The share of seeds in which topics are deleted, recreated and hidden."""
_DECIDED_IN = 0.15
"""The share, beside these, in which operators decide about remote data of a topic."""
_RARE_IN = 0.1
"""The share, beside all these, in which something happens that other stories leave no time for."""
DECISIONS: tuple[Story, ...] = (disabled, discarded)
RARE: tuple[Story, ...] = (replaced, frozen)


def drawn_by(chance: random.Random) -> Sequence[Story]:
    """The stories of a seed, by its own chance for them; mostly none."""
    dice = chance.random()
    if dice < _TOPICS_END_IN:
        return [chance.choice(STORIES) for _ in range(chance.randint(1, 2))]
    if dice >= _TOPICS_END_IN + _DECIDED_IN:
        return [chance.choice(RARE)] if dice >= 1.0 - _RARE_IN else ()
    stories = [chance.choice(DECISIONS)]
    if chance.random() < 0.4:
        stories.append(chance.choice((*DECISIONS, *STORIES)))
    return stories


def chance_of(seed: int) -> random.Random:
    """Of what concerns stories alone, so that other seeds are what they would be without."""
    return random.Random(f"topics of {seed}")


def seeds_with(among: Sequence[Story]) -> Iterator[int]:
    """All seeds, or those that begin with one of these stories."""
    for seed in itertools.count():
        if not among or set(drawn_by(chance_of(seed))[:1]) & set(among):
            yield seed


async def run(world: "World", chance: random.Random, stories: Sequence[Story]) -> None:
    """One after the other."""
    world.say("stories: " + ", ".join(one.__name__ for one in stories))
    for story in stories:
        await asyncio.sleep(chance.uniform(1.0, 7.0))
        await story(world, chance)
