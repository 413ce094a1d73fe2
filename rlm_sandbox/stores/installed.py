"""Whether the plugin of a kind of store can run here, asked before anything is started."""

from kip405.errors import Invalid
from rlm_sandbox.errors import SandboxError
from rsm_plugins.store_kinds import store_kind


def check_installed(kind: str) -> None:
    """SandboxError says which extra to install where the kind's library is missing."""
    try:
        store_kind(kind)
    except Invalid as error:
        raise SandboxError(f"--store {kind}: {error}") from error
