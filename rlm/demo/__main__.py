"""`python -m rlm.demo`: options in, exit status out; brings the sandbox up and down around it."""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import grpc
from confluent_kafka import KafkaException

from kip405.errors import RemoteStorageError
from rlm.clock import Clock, SystemClock
from rlm.demo.errors import DemoError
from rlm.demo.interruption import Interrupted, interruptible, undisturbed
from rlm.demo.read_java import console_consumer
from rlm.demo.report import Report, mib, new_console
from rlm.demo.walk import TOPIC, Walk
from rlm.sandbox.errors import SandboxError
from rlm.sandbox.sandbox import Sandbox
from rlm.sandbox.spec import SandboxSpec

_DISK_COPIES = 4
_DISK_BASE_BYTES = 512 << 20


@click.command()
@click.option("--dir", "root", type=click.Path(path_type=Path), help="Where (default: temporary).")
@click.option("--keep", is_flag=True, envvar="KEEP", help="Leave everything up (or KEEP=1).")
@click.option("--size-mib", type=click.IntRange(min=16), default=240, show_default=True)
@click.option("--kafka-home", type=click.Path(path_type=Path), help="Use this Kafka (libs/*.jar).")
@click.option("--store", envvar="STORE", default="local", show_default=True)
def main(
    *, root: Path | None, keep: bool, size_mib: int, kafka_home: Path | None, store: str
) -> None:
    """A real Kafka, real records, trimmed locally and read back whole by three clients."""
    clock = SystemClock()
    report = Report(new_console(), clock)
    demo = Demo(
        report=report,
        clock=clock,
        root=root,
        keep=keep,
        size_bytes=size_mib << 20,
        kafka_home=kafka_home,
        store=store or "local",
    )
    sys.exit(demo.run())
