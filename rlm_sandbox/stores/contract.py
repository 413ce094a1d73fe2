"""The interface of a sandbox's store, and the check that its plugin can run here.

Process names are those of `spec.STORE_PROCESSES`. Must not know brokers or services.
"""

from collections.abc import Callable
from typing import Any, Protocol

from kip405.errors import Invalid
from rlm_sandbox.spec import SandboxError
from rsm_plugins.store_kinds import store_kind

Progress = Callable[[str], None]


class SandboxStore(Protocol):
    """One store of one sandbox. Methods block; all raise SandboxError with one clear line."""

    def resolve(self, progress: Progress) -> None:
        """Get what the servers are made of into the cache, and check that the plugin can run."""
        ...

    def prepare(self) -> None:
        """Write the servers' files before they start; what is there of an earlier run stays."""
        ...

    def command(self, name: str) -> list[str]:
        """Argument vector of a process of the store."""
        ...

    def environ(self, name: str) -> dict[str, str]:
        """Additions to the environment of a process of the store."""
        ...

    def ports_of(self, name: str) -> tuple[int, ...]:
        """Loopback ports that the process listens on."""
        ...

    def is_ready(self, name: str) -> bool:
        """Whether the process answers now; never waits longer than a second or two."""
        ...

    def create(self) -> None:
        """Make the bucket or the root where there is none; all processes are ready."""
        ...

    def plugin_settings(self) -> dict[str, Any]:
        """The rows of the plugin's YAML that name this store; paths to secrets, no secrets."""
        ...

    def document(self) -> dict[str, Any]:
        """The fields of the store in sandbox.json beside `kind` and `pids`; always has `uri`."""
        ...


def check_installed(kind: str) -> None:
    """SandboxError says which extra to install where the kind's library is missing."""
    try:
        store_kind(kind)
    except Invalid as error:
        raise SandboxError(f"--store {kind}: {error}") from error
