"""kill, start, stop, pause and resume of one part of a running sandbox.

A local store has no process of its own: stopping (or killing) it moves its directory away, so that
every access fails at once; pausing it stops the plugins, the only way to it, so that every access
hangs as on a dead network disk.
"""

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass

from rlm.clock import Clock
from rlm.sandbox import state as states
from rlm.sandbox.document import sandbox_document
from rlm.sandbox.errors import SandboxError
from rlm.sandbox.files import write_atomically
from rlm.sandbox.kafka_dist import KafkaDist
from rlm.sandbox.launcher import Launcher, stages
from rlm.sandbox.nodes import format_storage
from rlm.sandbox.ports import port_is_free
from rlm.sandbox.processes import ProcessIdentity, kill_group, pause_group, stop_all
from rlm.sandbox.spec import Layout
from rlm.sandbox.state import SandboxState, locked

STORE = "store"
_STOP_GRACE_MS = 20_000
_READY_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbs:
    """The five verbs; each holds the sandbox's lock while it works."""

    layout: Layout
    dist: KafkaDist
    clock: Clock

    def start(self, target: str, *, wait: bool) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            if target == STORE:
                self._bring_store_back()
                return
            known = state.processes.get(target)
            if known is not None and (now := known.state()) != "stopped":
                raise SandboxError(f"{target} is {now} (pid {known.pid})")
            launcher = self._launcher(state)
            for port in launcher.ports_of(target):
                if not port_is_free(port):
                    raise SandboxError(f"{target}: port {port} is taken by another process")
            if target.startswith("broker:"):
                format_storage(self.dist, self.layout, state)
            identity = launcher.start(target)
            self._remember(state.with_process(target, identity))
        if wait:
            launcher.wait_ready(target, identity, timeout_ms=_READY_TIMEOUT_MS)

    def stop(self, target: str) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            if target == STORE:
                self._move_store_away()
            elif (identity := state.processes.get(target)) is not None:
                stop_all([identity], grace_ms=_STOP_GRACE_MS, clock=self.clock)

    def kill(self, target: str) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            if target == STORE:
                self._move_store_away()
            elif (identity := state.processes.get(target)) is not None:
                kill_group(identity)

    def pause(self, target: str) -> None:
        self._each(target, pause_group)

    def resume(self, target: str) -> None:
        self._each(target, lambda identity: identity.signal_group(signal.SIGCONT))

    def _each(self, target: str, act: Callable[[ProcessIdentity], bool]) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            for name, identity in self._signalled(state, target):
                if not act(identity):
                    raise SandboxError(f"{name} is not running")

    @staticmethod
    def _signalled(state: SandboxState, target: str) -> list[tuple[str, ProcessIdentity]]:
        if target != STORE:
            if target not in state.processes:
                raise SandboxError(f"{target} is not running")
            return [(target, state.processes[target])]
        plugins = [one for one in state.processes.items() if one[0].startswith("plugin:")]
        return [(name, identity) for name, identity in plugins if identity.find() is not None]

    def _state_for(self, target: str) -> SandboxState:
        state = states.load_existing(self.layout.root)
        known = [name for stage in stages(state.spec) for name in stage]
        if state.spec.services:
            known.append(STORE)
        if target not in known:
            raise SandboxError(f"{target}: not a part of this sandbox; it has {', '.join(known)}")
        return state

    def _launcher(self, state: SandboxState) -> Launcher:
        return Launcher(layout=self.layout, state=state, dist=self.dist, clock=self.clock)

    def _remember(self, state: SandboxState) -> None:
        states.save(self.layout, state)
        document = sandbox_document(self.layout, state)
        write_atomically(self.layout.document, json.dumps(document, indent=2) + "\n")

    def _move_store_away(self) -> None:
        if self.layout.store.exists():
            self.layout.store.rename(self.layout.store_away)

    def _bring_store_back(self) -> None:
        if not self.layout.store_away.exists():
            raise SandboxError("the store is not stopped")
        if self.layout.store.exists():
            if any(self.layout.store.iterdir()):
                raise SandboxError(f"{self.layout.store} was made anew while the store was away")
            self.layout.store.rmdir()
        self.layout.store_away.rename(self.layout.store)
