"""The steps of the demo, one function each, in the order in which they are told.

Each shows how far it is and says in one line what came out; DemoError where a promise is not kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from logging import Logger

from rlm.clock import Clock
from rlm.demo.client_log import client_log
from rlm.demo.comparison import Comparison
from rlm.demo.content import Content
from rlm.demo.errors import DemoError
from rlm.demo.manifest import Manifest
from rlm.demo.produce import Load, create_topic
from rlm.demo.read_aiokafka import read_aiokafka
from rlm.demo.read_java import read_java
from rlm.demo.read_librdkafka import read_librdkafka
from rlm.demo.reading import Progress, Yardstick
from rlm.demo.report import Report, Step, mib
from rlm.demo.tiering import (
    OFFSET_OUT_OF_RANGE,
    LogDirectory,
    fetch_first,
    run_rlm,
    shortened,
    wait_tiered,
)
from rlm.sandbox.sandbox import Sandbox
from rlm.sandbox.stores.objects import store_objects

TOPIC = "demo-orders"
SEGMENT_BYTES = 2 << 20
LOCAL_RETENTION_BYTES = 3 << 20
SEED = 405
_AN_HOUR_MS = 3_600_000
_RESTART_AFTER = 0.4
_SHOWN_PARTITION = 0


@dataclass(slots=True, kw_only=True)
class Walk:
    """One walk through all steps against a running sandbox."""

    sandbox: Sandbox
    report: Report
    clock: Clock
    size_bytes: int
    unequal: list[str] = field(default_factory=list)

    def run(self) -> None:
        """All steps; DemoError at the first that fails, reads excepted: all are done first."""
        self._create()
        content = Content(seed=SEED, start_ms=self.clock.now_ms() - _AN_HOUR_MS)
        manifest = self._produce(content)
        self._tier(manifest)
        self._ask_for_offset_0(manifest)
        committed = Yardstick(expected=manifest.expected(committed_only=True), content=content)
        everything = Yardstick(expected=manifest.expected(committed_only=False), content=content)
        self._read_java(committed)
        self._read_with_restart(committed)
        self._read_aiokafka(committed)
        self._read_uncommitted(everything)
        if self.unequal:
            raise DemoError("\n".join(self.unequal))

    def _create(self) -> None:
        with self.report.step("create a topic, copy it from now on") as step:
            create_topic(self.sandbox.bootstrap, TOPIC, segment_bytes=SEGMENT_BYTES)
            self._rlm(step, "topics", "enable", TOPIC)
            step.result = f"{TOPIC}, segments of {mib(SEGMENT_BYTES)}"

    def _produce(self, content: Content) -> Manifest:
        with self.report.step("produce") as step:
            load = Load(self.sandbox.bootstrap, TOPIC, content, self._log())
            of = mib(self.size_bytes)
            manifest = load.run(
                self.size_bytes, lambda size: step.show(f"{mib(size)} of {of} of values")
            )
            manifest.save(self.sandbox.layout.root / "manifest.csv.gz")
            step.result = (
                f"{manifest.records} records, {mib(manifest.value_bytes)} of values"
                f" (before compression), on average"
                f" {manifest.value_bytes // max(1, manifest.records)} bytes;"
                f" {manifest.aborted_records} more in aborted transactions"
            )
            return manifest

    def _tier(self, manifest: Manifest) -> None:
        with self.report.step("wait until old segments are remote and trimmed") as step:
            before = self._look(manifest)
            self._rlm(
                step,
                *("topics", "enable", TOPIC, "--trim"),
                *("--local-retention-bytes", str(LOCAL_RETENTION_BYTES)),
            )
            most_bytes = len(manifest.partitions) * (LOCAL_RETENTION_BYTES + 2 * SEGMENT_BYTES)
            rows = wait_tiered(
                self._address("grpc"),
                TOPIC,
                is_trimmed=lambda: self._look(manifest).size_bytes <= most_bytes,
                clock=self.clock,
                progress=step.show,
            )
            after = self._look(manifest)
            self._show_directories(before, after)
            self._show_objects()
            for partition in manifest.partitions:
                if after.segments[partition][:1] == before.segments[partition][:1]:
                    raise DemoError(f"the first segment of partition {partition} is still there")
            remote = sum(row.remote_segments for row in rows)
            size = sum(row.remote_size_bytes for row in rows)
            step.result = (
                f"on disk {before.count} segments ({mib(before.size_bytes)}) before,"
                f" {after.count} ({mib(after.size_bytes)}) after; remote {remote} ({mib(size)})"
            )

    def _show_directories(self, before: LogDirectory, after: LogDirectory) -> None:
        name = f"{TOPIC}-{_SHOWN_PARTITION}"
        self.report.listing(f"$ ls {name}/*.log   (before)", before.lines(_SHOWN_PARTITION))
        self.report.listing(f"$ ls {name}/*.log   (after)", after.lines(_SHOWN_PARTITION))

    def _show_objects(self) -> None:
        """The partition's objects as the store itself lists them."""
        store = self.sandbox.json["store"]
        objects = store_objects(store)
        folders: dict[str, list[str]] = {}
        for name, size_bytes in objects.sizes().items():
            folder, _, last = name.rpartition("/")
            folders.setdefault(folder, []).append(f"{size_bytes:>9} {last}")
        for folder, lines in folders.items():
            *_, topic, partition = ["", *folder.split("/")]
            if topic.startswith(f"{TOPIC}-") and partition == str(_SHOWN_PARTITION):
                title = f"in the store ({objects.means}): {store['uri']}/{folder}"
                self.report.listing(title, shortened(lines))

    def _ask_for_offset_0(self, manifest: Manifest) -> None:
        with self.report.step("fetch offset 0 from broker and proxy") as step:
            for partition in manifest.partitions:
                code, _ = fetch_first(self._address("direct"), TOPIC, partition)
                if code != OFFSET_OUT_OF_RANGE:
                    raise DemoError(f"the broker answered partition {partition} with error {code}")
                code, size_bytes = fetch_first(self._address("proxy"), TOPIC, partition)
                if code or not size_bytes:
                    raise DemoError(
                        f"the proxy answered partition {partition} with error {code} and"
                        f" {size_bytes} bytes"
                    )
            step.result = "the broker itself: OFFSET_OUT_OF_RANGE; through the proxy: data"

    def _read_java(self, yardstick: Yardstick) -> None:
        with self.report.step("read with Java's console consumer") as step:
            read = read_java(
                self.sandbox.dist,
                self.sandbox.bootstrap,
                TOPIC,
                yardstick,
                progress=_counting(step, yardstick),
            )
            self._judge(step, read.comparison)
            if read.comparison.is_equal:
                step.result += f", digest of what it printed {read.digest}"
            if read.digest != read.expected_digest and read.comparison.is_equal:
                raise DemoError(f"the digest should be {read.expected_digest}")

    def _read_with_restart(self, yardstick: Yardstick) -> None:
        with self.report.step("read with librdkafka, service killed and restarted") as step:
            restart = _Restart(self.sandbox, int(yardstick.records * _RESTART_AFTER))
            show = _counting(step, yardstick)

            def progress(count: int) -> None:
                restart.at(count)
                show(count)

            comparison = self._librdkafka(yardstick, "read_committed", progress)
            self._judge(step, comparison)
            if restart.done_at is None or restart.done_at > yardstick.records * 0.9:
                raise DemoError(f"the service was not restarted in the middle: {restart.done_at}")
            step.result += f", kill -9 after {restart.done_at}, no position reset"

    def _read_aiokafka(self, yardstick: Yardstick) -> None:
        with self.report.step("read with aiokafka") as step:
            comparison = read_aiokafka(
                self.sandbox.bootstrap,
                TOPIC,
                yardstick,
                clock=self.clock,
                progress=_counting(step, yardstick),
            )
            self._judge(step, comparison)

    def _read_uncommitted(self, yardstick: Yardstick) -> None:
        with self.report.step("read with librdkafka, read_uncommitted") as step:
            show = _counting(step, yardstick)
            self._judge(step, self._librdkafka(yardstick, "read_uncommitted", show))
            step.result += ", aborted ones too"

    def _librdkafka(self, yardstick: Yardstick, isolation: str, progress: Progress) -> Comparison:
        return read_librdkafka(
            self.sandbox.bootstrap,
            TOPIC,
            yardstick,
            isolation=isolation,
            clock=self.clock,
            progress=progress,
            log=self._log(),
        )

    def _log(self) -> Logger:
        return client_log(self.sandbox.layout.log("librdkafka"))

    def _judge(self, step: Step, comparison: Comparison) -> None:
        step.result = f"{comparison.read_records} of {comparison.expected_records} records, equal"
        if comparison.is_equal:
            return
        counts = ", ".join(f"{count} {kind.value}" for kind, count in comparison.counts.items())
        step.result = f"{comparison.read_records} of {comparison.expected_records}, {counts}"
        step.failed = True
        self.unequal += [f"{step.title}: {counts}", *(f"  {one}" for one in comparison.shown)]

    def _rlm(self, step: Step, *arguments: str) -> None:
        step.show(f"rlm {' '.join(arguments)}")
        output = run_rlm(self.sandbox.layout.root, *arguments)
        self.report.listing(f"$ rlm {' '.join(arguments)}", output.rstrip().splitlines())

    def _look(self, manifest: Manifest) -> LogDirectory:
        return LogDirectory.look(self.sandbox.log_dirs()[0], TOPIC, manifest.partitions)

    def _address(self, what: str) -> str:
        return str(self.sandbox.json["brokers"][0][what])


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
