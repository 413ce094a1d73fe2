"""The steps of `make demo` on the prepared topic: the same records, read by three clients.

Each shows its progress and its result in one line; DemoError where a promise is not kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rlm_sandbox.demo.comparison import Comparison, Manifest, Progress, Yardstick
from rlm_sandbox.demo.read_aiokafka import read_aiokafka
from rlm_sandbox.demo.read_java import read_java
from rlm_sandbox.demo.read_librdkafka import read_librdkafka
from rlm_sandbox.demo.report import DemoError, Step
from rlm_sandbox.demo.run import TOPIC, DemoRun
from rlm_sandbox.demo.tiering import OFFSET_OUT_OF_RANGE, fetch_first
from rlm_sandbox.sandbox import Sandbox

_RESTART_AFTER = 0.4


@dataclass(slots=True, kw_only=True)
class ClientSteps:
    """All steps against a running sandbox."""

    demo: DemoRun
    verdict: str = "all records were read by all clients, equal, in order, none twice"

    def run(self) -> None:
        """All steps; DemoError at the first that fails, reads excepted: all are done first."""
        manifest, content = self.demo.prepare()
        self._ask_for_offset_0(manifest)
        committed = Yardstick(expected=manifest.expected(committed_only=True), content=content)
        everything = Yardstick(expected=manifest.expected(committed_only=False), content=content)
        self._read_java(committed)
        self._read_with_restart(committed)
        self._read_aiokafka(committed)
        self._read_uncommitted(everything)
        self.demo.finish()

    def _ask_for_offset_0(self, manifest: Manifest) -> None:
        with self.demo.report.step("fetch offset 0 from broker and proxy") as step:
            for partition in manifest.partitions:
                code, _ = fetch_first(self.demo.address("direct"), TOPIC, partition)
                if code != OFFSET_OUT_OF_RANGE:
                    raise DemoError(f"the broker answered partition {partition} with error {code}")
                code, size_bytes = fetch_first(self.demo.address("proxy"), TOPIC, partition)
                if code or not size_bytes:
                    raise DemoError(
                        f"the proxy answered partition {partition} with error {code} and"
                        f" {size_bytes} bytes"
                    )
            step.result = "the broker itself: OFFSET_OUT_OF_RANGE; through the proxy: data"

    def _read_java(self, yardstick: Yardstick) -> None:
        with self.demo.report.step("read with Java's console consumer") as step:
            read = read_java(
                self.demo.sandbox.dist,
                self.demo.sandbox.bootstrap,
                TOPIC,
                yardstick,
                progress=_counting(step, yardstick),
            )
            self.demo.record(step, read.comparison)
            if read.comparison.is_equal:
                step.result += f", digest of what it printed {read.digest}"
            if read.digest != read.expected_digest and read.comparison.is_equal:
                raise DemoError(f"the digest should be {read.expected_digest}")

    def _read_with_restart(self, yardstick: Yardstick) -> None:
        with self.demo.report.step("read with librdkafka, service killed and restarted") as step:
            restart = _Restart(self.demo.sandbox, int(yardstick.records * _RESTART_AFTER))
            show = _counting(step, yardstick)

            def progress(count: int) -> None:
                restart.at(count)
                show(count)

            comparison = self._librdkafka(yardstick, "read_committed", progress)
            self.demo.record(step, comparison)
            if restart.done_at is None or restart.done_at > yardstick.records * 0.9:
                raise DemoError(f"the service was not restarted in the middle: {restart.done_at}")
            step.result += f", kill -9 after {restart.done_at}, no position reset"

    def _read_aiokafka(self, yardstick: Yardstick) -> None:
        with self.demo.report.step("read with aiokafka") as step:
            comparison = read_aiokafka(
                self.demo.sandbox.bootstrap,
                TOPIC,
                yardstick,
                clock=self.demo.clock,
                progress=_counting(step, yardstick),
            )
            self.demo.record(step, comparison)

    def _read_uncommitted(self, yardstick: Yardstick) -> None:
        with self.demo.report.step("read with librdkafka, read_uncommitted") as step:
            show = _counting(step, yardstick)
            self.demo.record(step, self._librdkafka(yardstick, "read_uncommitted", show))
            step.result += ", aborted ones too"

    def _librdkafka(self, yardstick: Yardstick, isolation: str, progress: Progress) -> Comparison:
        return read_librdkafka(
            self.demo.sandbox.bootstrap,
            TOPIC,
            yardstick,
            isolation=isolation,
            clock=self.demo.clock,
            progress=progress,
            log=self.demo.log(),
        )


@dataclass(slots=True)
class _Restart:
    """SIGKILL of the service and its start, once, when a read has come so far."""

    sandbox: Sandbox
    threshold: int
    done_at: int | None = None

    def at(self, count: int) -> None:
        if self.done_at is None and count >= self.threshold:
            self.done_at = count
            self.sandbox.kill("rlm:1")
            self.sandbox.start("rlm:1", wait=False)


def _counting(step: Step, yardstick: Yardstick) -> Callable[[int], None]:
    of = yardstick.records
    return lambda count: step.show(f"{count} of {of} records")
