"""kill, start, stop, pause and resume of one process of a running sandbox.

`store` means all servers of the store, each of which also has a name of its own (`store:s3`). A
local store has no process: stopping (or killing) it moves its directory away, so that every access
fails at once; pausing it stops the plugins, the only way to it, so that every access hangs as on a
dead network disk.
"""

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass

from rlm.clock import Clock
from rlm_sandbox import state as states
from rlm_sandbox.document import sandbox_document
from rlm_sandbox.files import write_atomically
from rlm_sandbox.kafka_dist import KafkaDist
from rlm_sandbox.launcher import Launcher, stages
from rlm_sandbox.nodes import format_storage
from rlm_sandbox.ports import port_is_free
from rlm_sandbox.processes import ProcessIdentity, kill_group, pause_group, stop_all
from rlm_sandbox.spec import Layout, SandboxError
from rlm_sandbox.state import SandboxState, locked

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
            if _is_directory(state, target):
                self._bring_store_back()
                return
            names = _stopped(state, target)
            for name in names:
                state = self._start_one(state, name)
        if wait:
            launcher = self._launcher(state)
            for name in names:
                identity = state.processes[name]
                launcher.wait_ready(name, identity, timeout_ms=_READY_TIMEOUT_MS)

    def _start_one(self, state: SandboxState, name: str) -> SandboxState:
        launcher = self._launcher(state)
        for port in launcher.ports_of(name):
            if not port_is_free(port):
                raise SandboxError(f"{name}: port {port} is taken by another process")
        if name.startswith("broker:"):
            format_storage(self.dist, self.layout, state)
        state = state.with_process(name, launcher.start(name))
        self._remember(state)
        return state

    def stop(self, target: str) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            if _is_directory(state, target):
                self._move_store_away()
            else:
                stop_all(_identities(state, target), grace_ms=_STOP_GRACE_MS, clock=self.clock)

    def kill(self, target: str) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            if _is_directory(state, target):
                self._move_store_away()
            else:
                for identity in _identities(state, target):
                    kill_group(identity)

    def pause(self, target: str) -> None:
        self._each(target, pause_group)

    def resume(self, target: str) -> None:
        self._each(target, lambda identity: identity.signal_group(signal.SIGCONT))

    def _each(self, target: str, act: Callable[[ProcessIdentity], bool]) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            for name, identity in _signalled(state, target):
                if not act(identity):
                    raise SandboxError(f"{name} is not running")

    def _state_for(self, target: str) -> SandboxState:
        state = states.load_existing(self.layout.root)
        known = [name for stage in stages(state.spec) for name in stage]
        if state.spec.services:
            known.append(STORE)
        if target not in known:
            raise SandboxError(f"{target}: no process of this sandbox; it has {', '.join(known)}")
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
                raise SandboxError(f"{self.layout.store} was recreated while the store was away")
            self.layout.store.rmdir()
        self.layout.store_away.rename(self.layout.store)


def _is_directory(state: SandboxState, target: str) -> bool:
    """Whether the target is a store without processes."""
    return target == STORE and not state.spec.store_processes


def _names(state: SandboxState, target: str) -> tuple[str, ...]:
    return state.spec.store_processes if target == STORE else (target,)


def _identities(state: SandboxState, target: str) -> list[ProcessIdentity]:
    return [state.processes[name] for name in _names(state, target) if name in state.processes]


def _stopped(state: SandboxState, target: str) -> list[str]:
    """The target's processes that do not run; SandboxError when all of them do, or are paused."""
    names = _names(state, target)
    states_now = {
        name: state.processes[name].state() if name in state.processes else "stopped"
        for name in names
    }
    stopped = [name for name, now in states_now.items() if now == "stopped"]
    if not stopped:
        name, now = next(iter(states_now.items()))
        raise SandboxError(f"{name} is {now} (pid {state.processes[name].pid})")
    return stopped


def _signalled(state: SandboxState, target: str) -> list[tuple[str, ProcessIdentity]]:
    """Processes that pause and resume mean; a local store is reached through the plugins only."""
    if not _is_directory(state, target):
        known = [(name, state.processes.get(name)) for name in _names(state, target)]
        missing = [name for name, identity in known if identity is None]
        if missing:
            raise SandboxError(f"{missing[0]} is not running")
        return [(name, identity) for name, identity in known if identity is not None]
    plugins = [one for one in state.processes.items() if one[0].startswith("plugin:")]
    return [(name, identity) for name, identity in plugins if identity.find() is not None]
