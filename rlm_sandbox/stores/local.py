"""A directory as the store: no process, nothing to fetch."""

from dataclasses import dataclass
from typing import Any

from rlm_sandbox.spec import Layout
from rlm_sandbox.stores.contract import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStore:
    """The directory `store` of the sandbox; see SandboxStore."""

    layout: Layout

    def resolve(self, progress: Progress) -> None:
        """Nothing is needed."""

    def prepare(self) -> None:
        self.layout.store.mkdir(exist_ok=True)

    def command(self, name: str) -> list[str]:
        raise KeyError(name)

    def environ(self, name: str) -> dict[str, str]:
        raise KeyError(name)

    def ports_of(self, name: str) -> tuple[int, ...]:
        raise KeyError(name)

    def is_ready(self, name: str) -> bool:
        raise KeyError(name)

    def create(self) -> None:
        """The directory is made before anything starts, see `prepare`."""

    def plugin_settings(self) -> dict[str, Any]:
        return {"rsm.config.root": str(self.layout.store)}

    def document(self) -> dict[str, Any]:
        return {"uri": self.layout.store.absolute().as_uri()}
