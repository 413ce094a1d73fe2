"""What `rlm status` and `rlm doctor` show of one store, as values."""

from dataclasses import dataclass

from kip405.contracts import StoreFinding
from kip405.ids import Uuid
from rlm.stores.judgement import Level, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """`name` empty: only the ledger knows the store. `segments`, `size_bytes`: FINISHED ones."""

    name: str = ""
    store_id: Uuid | None = None
    plugin: str = ""
    uri: str = ""
    problem: str = ""
    segments: int = 0
    size_bytes: int = 0
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What a store said and what it means; `problem` says why it said nothing."""

    name: str
    uri: str = ""
    findings: tuple[StoreFinding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    problem: str = ""

    @property
    def alarms(self) -> tuple[str, ...]:
        return tuple(one.text for one in self.verdicts if one.level is Level.ALARM)
