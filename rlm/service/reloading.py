"""Reloads the settings of a running service: by SIGHUP, and by a call of the API.

The file and the environment are read as at a start. If anything in them is wrong, nothing changes.
Otherwise what changes while a service runs is put in force between two steps of the event loop, so
that no component works by half of it; the rest is named and waits for a restart. One line of the
log says both, without the value of any secret.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from kip405.errors import RemoteStorageError, error_of_kind
from rlm.config.common import CommonConfig
from rlm.config.running import RunningConfig, SettingChanges, changes_between, taken_over
from rlm.reading.throttle import ReadThrottle
from rlm.service.read_path import throttle_limits
from rsm_plugins.process.logs import change_log_level
from rsm_plugins.threads import Threads

log = structlog.get_logger(__name__)
C = TypeVar("C", bound=CommonConfig)
_SHOWS_INFO = ("debug", "info")


class ConfigReload(Generic[C]):
    """`read` reads the configuration again, in a thread. `apply` gives components what they do not
    ask for themselves; it neither waits nor fails.
    """

    def __init__(
        self,
        *,
        running: RunningConfig[C],
        read: Callable[[], C],
        apply: Callable[[C], None],
        threads: Threads,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._running = running
        self._read = read
        self._apply = apply
        self._threads = threads
        self._tasks = tasks
        self._one_at_a_time = asyncio.Lock()

    def request(self) -> None:
        """Reload in the background, as for a signal; what is refused is in the log."""
        reload = self._logged()
        try:
            self._tasks.create_task(reload)
        except RuntimeError:  # the service ends
            reload.close()

    async def reload(self) -> SettingChanges:
        """Read again, and put in force. Invalid: the settings cannot be used; the former ones stay
        in force, all of them. Unavailable, Busy: they could not be read.
        """
        async with self._one_at_a_time:
            try:
                found = await self._threads.run(self._read)
            except RemoteStorageError as error:
                log.error("settings_not_reloaded", error=str(error))
                raise error_of_kind(error.kind, f"nothing was changed: {error}") from error
            return self._take(found)

    async def _logged(self) -> None:
        try:
            await self.reload()
        except RemoteStorageError:
            return
        except Exception:  # a fault in a reload must not end the service (G6)
            log.exception("settings_not_reloaded")

    def _take(self, found: C) -> SettingChanges:
        before = self._running.now
        changes, after = changes_between(before, found), taken_over(before, found)
        if before.log_level in _SHOWS_INFO:  # afterwards the line may be below the level
            _log(changes)
        self._running.now = after
        change_log_level(after.log_level)
        self._apply(after)
        if before.log_level not in _SHOWS_INFO:
            _log(changes)
        return changes


def change_quotas(throttle: ReadThrottle, config: CommonConfig) -> None:
    """The quotas on historical reads, in every role."""
    throttle.change_limits(throttle_limits(config))


def _log(changes: SettingChanges) -> None:
    applied = {one.key: f"{one.before}->{one.after}" for one in changes.applied}
    log.info("settings_reloaded", **applied, needs_restart=list(changes.needs_restart))
