"""The configuration in force: what a reload changes in it, and what waits for a restart. Pure.

Only settings whose row says `changes_while_running` are taken from a new configuration, all of them
as one value. Components that ask `RunningConfig.now` each time go by them at once; others are given
them by the service (rlm/service/reloading.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from kip405.settings import rows_of
from rlm.config.common import CommonConfig

C = TypeVar("C", bound=CommonConfig)
_STORES = "stores"


class RunningConfig(Generic[C]):
    """`now` is the configuration by which the service works at this moment."""

    def __init__(self, config: C) -> None:
        self.now = config


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting that is in force now, with both values as text. A secret is not shown."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanges:
    """What a new configuration changes: at once, and with the next start, as keys."""

    applied: tuple[SettingChange, ...] = ()
    needs_restart: tuple[str, ...] = ()


def changes_between(before: CommonConfig, after: CommonConfig) -> SettingChanges:
    """Both are of one role."""
    former, latter = before.shown(), after.shown()
    applied, needs_restart = [], []
    for name, row in rows_of(type(before)).items():
        if getattr(before, name) == getattr(after, name):
            continue
        if row.changes_while_running:
            key = row.key
            applied.append(SettingChange(key=key, before=former[key], after=latter[key]))
        else:
            needs_restart += _of_stores(before, after) if name == _STORES else [row.key]
    return SettingChanges(applied=tuple(applied), needs_restart=tuple(needs_restart))


def taken_over(before: C, after: C) -> C:
    """The former configuration with what changes while the service runs."""
    rows = rows_of(type(before)).items()
    changed = {name: getattr(after, name) for name, row in rows if row.changes_while_running}
    return replace(before, **changed)


def _of_stores(before: CommonConfig, after: CommonConfig) -> list[str]:
    """The keys of stores that differ; where only what is not shown does, `stores`."""
    former, latter = _shown_stores(before), _shown_stores(after)
    keys = [key for key in {**former, **latter} if former.get(key) != latter.get(key)]
    return keys or [_STORES]


def _shown_stores(config: CommonConfig) -> Mapping[str, str]:
    return {key: text for store in config.stores for key, text in store.shown().items()}
