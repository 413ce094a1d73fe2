"""Whose retention acts on a topic, and what must change in its configuration for that (H14). Pure.

    fact                     originals   the topic's own retention.ms and .bytes
    enabled, mode tier       kept        -1, set on the topic: ours act
    anything else            kept        half-done: give them back, then forget them
    anything else            none        not ours to touch

The fact is written and read back before the first change, so a crash between leaves a fact that
says what to do. Only a -1 set on the topic is taken for ours when it is given back: another value
is somebody's newer will. Such a will is written into the originals before it is set back to -1, so
that what an administrator chose last is what is given back.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rlm.topics.rules import RETENTION_BYTES, RETENTION_MS, Config, value_of
from rlmm.facts import TopicFact

TAKEN_OVER = (RETENTION_MS, RETENTION_BYTES)
UNLIMITED = "-1"

Originals = Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One IncrementalAlterConfigs: values to set, and names to unset."""

    set_values: Mapping[str, str]
    unset: tuple[str, ...] = ()


def is_taken_over(fact: TopicFact) -> bool:
    """Whether the broker's retention must be off."""
    return fact.state == "enabled" and fact.mode == "tier"


def originals_of(config: Config) -> dict[str, str | None]:
    """What is set on the topic itself before we touch it; None = nothing is."""
    return {name: _own(config, name) for name in TAKEN_OVER}


def chosen_since(fact: TopicFact, config: Config) -> dict[str, str | None]:
    """The originals, with what somebody else has set or unset on the topic since they were taken
    over. `config`: read by a broker that already knows our own last change.
    """
    present = {name: _own(config, name) for name in TAKEN_OVER}
    return {
        **fact.originals,
        **{name: value for name, value in present.items() if value != UNLIMITED},
    }


def needed_change(fact: TopicFact, config: Config) -> ConfigChange | None:
    """What makes the configuration agree with the fact; None = it does."""
    if is_taken_over(fact):
        bounded = [name for name in TAKEN_OVER if _own(config, name) != UNLIMITED]
        return ConfigChange(set_values=dict.fromkeys(bounded, UNLIMITED)) if bounded else None
    return giving_back(fact.originals, config)


def giving_back(originals: Originals, config: Config) -> ConfigChange | None:
    """What restores the originals where our -1 still stands; None = nothing is left to do."""
    ours = {
        name: value
        for name, value in originals.items()
        if _own(config, name) == UNLIMITED and value != UNLIMITED
    }
    if not ours:
        return None
    return ConfigChange(
        set_values={name: value for name, value in ours.items() if value is not None},
        unset=tuple(name for name, value in ours.items() if value is None),
    )


def is_unfinished(fact: TopicFact, config: Config) -> bool:
    """Whether a change was begun and not done: the originals still stand, or wait to go back."""
    if is_taken_over(fact):
        return needed_change(fact, config) is not None and originals_of(config) == fact.originals
    return bool(fact.originals)


def bounds_of(config: Config) -> str:
    """The effective limits of the broker's own retention, empty where there is none."""
    return ", ".join(
        f"{name}={value}" for name in TAKEN_OVER if (value := value_of(config, name)) != UNLIMITED
    )


def _own(config: Config, name: str) -> str | None:
    found = config.get(name)
    return found.value if found is not None and found.is_topic_level else None
