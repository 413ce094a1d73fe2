"""The time by which data is old, and whether clocks agree so that anything may be deleted (H16).

Retention, the grace of leftovers and of unreferenced segments go by `now_ms`. What counts its delay
in another way (the end of a topic, a discard) asks `why_not` before it deletes: where the clocks
disagree, one of them decided or waited wrongly, and nobody knows which.
"""

from rlm.clock import Clock
from rlm.plans.expiry import Clocks, Held, NoExpiry, retention_now
from rlm.remote_log.ports import Settings


class CertainTime:
    """Our clock, the brokers' and those of all live services, compared anew by each call."""

    def __init__(self, *, settings: Settings, clock: Clock, heartbeat_max_age_ms: int) -> None:
        """`heartbeat_max_age_ms`: age of the heartbeat of a dead service."""
        self._settings = settings
        self._clock = clock
        self._heartbeat_max_age_ms = heartbeat_max_age_ms

    def now_ms(self) -> int | Held:
        """Wall ms, by the earlier of our clock and the brokers'; Held where it is not certain."""
        monotonic_ms, max_age_ms = self._clock.monotonic_ms(), self._heartbeat_max_age_ms
        view = self._settings.view
        if view.followed_ms(monotonic_ms) < max_age_ms:
            return Held(reason=NoExpiry.NOT_READY, detail="other services may not be heard yet")
        return retention_now(
            Clocks(
                own_ms=self._clock.now_ms(),
                log_ms=view.log_time_ms(monotonic_ms),
                others=view.clock_skews_now(monotonic_ms, max_age_ms=max_age_ms),
            )
        )

    def why_not(self) -> str | None:
        """Why nothing may be deleted now, for people; None where the time is certain."""
        now_ms = self.now_ms()
        return now_ms.words if isinstance(now_ms, Held) else None

    def disagreement(self) -> str | None:
        """The same for what needs no time: not while it is only not known yet who else lives."""
        now_ms = self.now_ms()
        if not isinstance(now_ms, Held) or now_ms.reason is not NoExpiry.CLOCK:
            return None
        return now_ms.words
