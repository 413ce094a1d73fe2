"""The first steps of every demo: a topic, its records, and old segments that are remote only.

Each shows its progress and its result in one line; DemoError where a promise is not kept.
"""

from dataclasses import dataclass, field
from logging import Logger

from rlm.clock import Clock
from rlm_sandbox.demo.comparison import Comparison, Manifest
from rlm_sandbox.demo.content import Content
from rlm_sandbox.demo.produce import Load, create_topic
from rlm_sandbox.demo.read_librdkafka import client_log
from rlm_sandbox.demo.report import DemoError, Report, Step, mib
from rlm_sandbox.demo.tiering import LogDirectory, run_rlm, shortened, wait_tiered
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.stores.objects import store_objects

TOPIC = "demo-orders"
SEGMENT_BYTES = 2 << 20
LOCAL_RETENTION_BYTES = 3 << 20
SEED = 405
_AN_HOUR_MS = 3_600_000
_SHOWN_PARTITION = 0


@dataclass(slots=True, kw_only=True)
class DemoRun:
    """A demo in a running sandbox: its report, and the reads that were not equal."""

    sandbox: Sandbox
    report: Report
    clock: Clock
    size_bytes: int
    unequal: list[str] = field(default_factory=list)

    def prepare(self) -> tuple[Manifest, Content]:
        """Topic, records, trimming; what was acknowledged and how to make its content again."""
        self._create()
        content = Content(seed=SEED, start_ms=self.clock.now_ms() - _AN_HOUR_MS)
        manifest = self._produce(content)
        self._tier(manifest)
        return manifest, content

    def finish(self) -> None:
        """DemoError with what every unequal read had to say."""
        if self.unequal:
            raise DemoError("\n".join(self.unequal))

    def address(self, what: str) -> str:
        """An address of broker 1: direct, proxy, grpc or http."""
        return str(self.sandbox.json["brokers"][0][what])

    def log(self) -> Logger:
        """The log of librdkafka."""
        return client_log(self.sandbox.layout.log("librdkafka"))

    def record(self, step: Step, comparison: Comparison) -> None:
        """Report the result of a read, and keep it where it is not equal."""
        step.result = f"{comparison.read_records} of {comparison.expected_records} records, equal"
        if comparison.is_equal:
            return
        counts = ", ".join(f"{count} {kind.value}" for kind, count in comparison.counts.items())
        step.result = f"{comparison.read_records} of {comparison.expected_records}, {counts}"
        step.failed = True
        self.unequal += [f"{step.title}: {counts}", *(f"  {one}" for one in comparison.shown)]

    def _create(self) -> None:
        with self.report.step("create a topic, copy it from now on") as step:
            create_topic(self.sandbox.bootstrap, TOPIC, segment_bytes=SEGMENT_BYTES)
            self._rlm(step, "topics", "enable", TOPIC)
            step.result = f"{TOPIC}, segments of {mib(SEGMENT_BYTES)}"

    def _produce(self, content: Content) -> Manifest:
        with self.report.step("produce") as step:
            load = Load(self.sandbox.bootstrap, TOPIC, content, self.log())
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
            before = self._listed(manifest)
            self._rlm(
                step,
                *("topics", "enable", TOPIC, "--trim"),
                *("--local-retention-bytes", str(LOCAL_RETENTION_BYTES)),
            )
            most_bytes = len(manifest.partitions) * (LOCAL_RETENTION_BYTES + 2 * SEGMENT_BYTES)
            rows = wait_tiered(
                self.address("grpc"),
                TOPIC,
                is_trimmed=lambda: self._listed(manifest).size_bytes <= most_bytes,
                clock=self.clock,
                progress=step.show,
            )
            after = self._listed(manifest)
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

    def _rlm(self, step: Step, *arguments: str) -> None:
        step.show(f"rlm {' '.join(arguments)}")
        output = run_rlm(self.sandbox.layout.root, *arguments)
        self.report.listing(f"$ rlm {' '.join(arguments)}", output.rstrip().splitlines())

    def _listed(self, manifest: Manifest) -> LogDirectory:
        return LogDirectory.listed(self.sandbox.log_dirs()[0], TOPIC, manifest.partitions)
