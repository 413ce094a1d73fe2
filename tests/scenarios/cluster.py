"""A sandbox with the verbs that scenarios speak: topics, records with their proof, waits, reads.

Everything goes the way of a user: `rlm` commands, unmodified clients, the brokers' own answers.
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from kip405.errors import Unavailable
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import STORE_PROCESSES
from tests.forked_commands import CommandFailed, Ended, run_command
from tests.scenarios.local_logs import is_beyond_retention
from tests.scenarios.rows import Acknowledged as Acknowledged
from tests.scenarios.rows import Row as Row
from tests.scenarios.rows import assert_same as assert_same
from tests.scenarios.rows import collect as collect
from tests.scenarios.rows import row_of as row_of

STORES = tuple(STORE_PROCESSES)
WORKERS = "workers"
"""A local store, and a service with two proxy workers."""

LONG_ON_SERVERS = (
    WORKERS,
    *(pytest.param(one, marks=() if one == "local" else pytest.mark.long) for one in STORES),
)
"""Values of the indirect parameter `one_broker`; with a real server the long way only."""

SMALL_SEGMENTS = {"segment.bytes": "1048576"}
_LIMIT_S = 120
"""Far more than anything takes that comes at all, also where all tests run at a time."""
_COMMAND_TIMEOUT_S = 300
_AGAIN_S, _POLL_S = 60, 0.2
_UNASKED = {"doctor": 2, "verify": 2}
"""Exit statuses that say that something could not be asked now."""
_NOT_YET = ("has never said", "COORDINATOR_LOAD_", "NOT_LEADER_", "no segment", "not confirmed yet")
_MOVING = (", not by ", "is not led by node", "is not led here any more")
_KEPT = "--local-retention-bytes"

_AWAY = (KafkaException, CommandFailed, Unavailable, subprocess.TimeoutExpired, OSError, EOFError)
"""Errors of who is asked while services and brokers start or move."""


def fresh(stem: str) -> str:
    """A topic name of this test run's own."""
    return f"{stem}-{os.urandom(3).hex()}"


def text_value(size_bytes: int = 1024) -> bytes:
    """A value that does not compress well and that the console consumer prints on one line."""
    return os.urandom(size_bytes // 2).hex().encode()


def _is_moving(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a service has not seen yet which leader, or leader epoch, there is now."""
    return done.returncode != 0 and any(text in done.stderr for text in _MOVING)


class Cluster:
    """A running sandbox; `direct` past the proxies, `bootstrap` through them. Close it: its admin
    client goes on asking for brokers that are gone.
    """

    def __init__(self, sandbox: Sandbox, client: Mapping[str, Any] | None = None) -> None:
        """`client`: what clients of librdkafka need besides to go through the proxies."""
        self.sandbox = sandbox
        self.client = dict(client or {})
        self.bootstrap = sandbox.bootstrap
        self.direct = sandbox.direct_bootstrap
        self._open = contextlib.ExitStack()
        self.admin = self._open.enter_context(self._new_admin())
        self._made: list[str] = []
        self._kept_bytes: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the admin client; the sandbox runs on."""
        self._open.close()

    def _admin_config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.direct}

    def _new_admin(self, **config: str) -> AdminClient:
        return AdminClient({**self._admin_config(), **config})

    def client_security(self) -> dict[str, str]:
        """What a program that reads through the proxies has to know (clients/reader.py)."""
        return {"protocol": "PLAINTEXT"}

    def kafka_python_options(self) -> dict[str, Any]:
        """Of kafka-python's admin client, past the proxies."""
        return {"bootstrap_servers": self.direct.split(",")}

    @property
    def store_kind(self) -> str:
        return str(self.sandbox.json["store"]["kind"])

    def rlm(
        self,
        *arguments: str,
        check: bool = True,
        timeout_s: float = _COMMAND_TIMEOUT_S,
        again: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run an `rlm` command against this sandbox; `status` may find alarms (1). One that fails
        by an error that says "try again" is run again, as by an operator, for a minute. Not
        `again`: it is expected to fail so.
        """
        until_s = time.monotonic() + _AGAIN_S
        while True:
            done = self._command(arguments, timeout_s)
            is_unasked = check and done.returncode == _UNASKED.get(arguments[0])
            is_not_yet = is_unasked or done.is_retriable or _is_moving(done)
            if not (again and is_not_yet) or time.monotonic() >= until_s:
                break
            print(f"rlm {' '.join(arguments)} is to be tried again: {done.stderr}")
            time.sleep(_POLL_S)
        allowed = (0, 1) if arguments[0] == "status" and not done.stderr else (0,)
        if check and done.returncode not in allowed:
            raise CommandFailed(f"{done.stderr}{done.stdout}rlm {arguments}: {done.returncode}")
        return done

    def _command(self, arguments: tuple[str, ...], timeout_s: float) -> Ended:
        environ = {**os.environ, "RLM_SANDBOX": str(self.sandbox.json["dir"])}
        return run_command(arguments, environ, timeout_s)

    def rlm_json(self, *arguments: str) -> Any:
        return json.loads(self.rlm(*arguments, "--json").stdout)

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        assignment: list[list[int]] | None = None,
    ) -> None:
        """Create and wait until every broker knows all the leaders. `assignment`: replicas each."""
        config = {**SMALL_SEGMENTS, **(configs or {})}
        kwargs: dict[str, Any] = {"replication_factor": replication_factor}
        if assignment is not None:
            kwargs = {"replica_assignment": assignment}
            partitions = len(assignment)
        new = NewTopic(topic, num_partitions=partitions, config=config, **kwargs)
        self._made.append(topic)
        asked = self.admin.create_topics([new], request_timeout=_LIMIT_S)
        asked[topic].result(_LIMIT_S)
        self.wait_for(lambda: self._all_know(topic, partitions), f"leaders of {topic}")

    def _all_know(self, topic: str, partitions: int) -> bool:
        """A new client asks the one broker that it is given."""
        for broker in self.admin.list_topics(topic, timeout=_LIMIT_S).brokers.values():
            with self._new_admin(**{"bootstrap.servers": f"{broker.host}:{broker.port}"}) as admin:
                found = admin.list_topics(topic, timeout=5).topics[topic].partitions
            if sum(one.leader >= 0 for one in found.values()) < partitions:
                return False
        return True

    def delete_topics(self) -> None:
        """Delete the topics made here, as far as they are still there: each costs the services of a
        cluster that other tests share a snapshot every half second.
        """
        made, self._made = self._made, []
        with self._new_admin() as admin:
            for asked in admin.delete_topics(made).values() if made else ():
                with contextlib.suppress(KafkaException, TimeoutError):
                    asked.result(_LIMIT_S)

    def enable(self, topic: str, *options: str) -> None:
        """`rlm topics enable T --trim` with small local retention unless options say otherwise.
        Services that have just begun may not have heard of each other yet, and a broker may still
        load its groups, or make the logs of a topic that is new.
        """
        chosen = options or ("--trim", _KEPT, "1048576")
        if _KEPT in chosen:
            self._kept_bytes[topic] = int(chosen[chosen.index(_KEPT) + 1])
        done: list[subprocess.CompletedProcess[str]] = []

        def is_known() -> bool:
            done.append(self.rlm("topics", "enable", topic, *chosen, check=False))
            return not any(text in done[-1].stderr for text in _NOT_YET)

        self.wait_for(is_known, "services that know each other, groups and a new topic")
        assert done[-1].returncode == 0, f"{topic} {chosen}: {done[-1].stdout}{done[-1].stderr}"

    def topic_config(self, topic: str) -> dict[str, tuple[str, Any]]:
        """DescribeConfigs of the topic: value and source of every entry."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = self.admin.describe_configs([resource])[resource].result(_LIMIT_S)
        return {name: (entry.value, entry.source) for name, entry in found.items()}

    def leader(self, topic: str, partition: int = 0) -> int:
        metadata = self.admin.list_topics(topic, timeout=_LIMIT_S).topics[topic].partitions
        return int(metadata[partition].leader) if partition in metadata else -1

    def wait_led(self, topic: str, partition: int = 0) -> int:
        """The leader, once there is one: a broker that seems dead for a moment leads nothing."""
        found = [-1]

        def is_led() -> bool:
            found[0] = self.leader(topic, partition)
            return found[0] >= 0

        self.wait_for(is_led, f"a leader of {topic}-{partition}")
        return found[0]

    def log_start(self, topic: str, partition: int = 0) -> int:
        """The broker's own log start, past the proxy."""
        return self._offset(topic, partition, OffsetSpec.earliest())

    def log_end(self, topic: str, partition: int = 0) -> int:
        return self._offset(topic, partition, OffsetSpec.latest())

    def _offset(self, topic: str, partition: int, spec: OffsetSpec) -> int:
        """Asked again while leaders move; the client keeps stale ones, so a new one is asked."""
        topic_partition, found = TopicPartition(topic, partition), []

        def ask() -> bool:
            try:
                asked = self.admin.list_offsets({topic_partition: spec})[topic_partition]
                found.append(asked.result(_LIMIT_S).offset)
            except KafkaException:
                self.close()
                self.admin = self._open.enter_context(self._new_admin())
                raise
            return True

        self.wait_for(ask, f"offset of {topic}-{partition}")
        return int(found[0])

    def produce(
        self,
        topic: str,
        values: Iterable[tuple[int, bytes | None, bytes | None]],
        **config: Any,
    ) -> list[Row]:
        """(partition, key, value) through the proxy, acks=all; the rows the broker acknowledged."""
        acked = Acknowledged()
        failures: list[KafkaError] = []

        def delivered(timestamp_ms: int, error: KafkaError | None, message: Any) -> None:
            if error is not None:
                failures.append(error)
            else:
                acked.add(message, timestamp_ms)

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 32_768,  # many batches a segment
                **self.client,
                **config,
            }
        )
        for partition, key, value in values:
            now_ms = int(time.time() * 1000)
            while True:
                try:
                    producer.produce(
                        topic,
                        value=value,
                        key=key,
                        partition=partition,
                        timestamp=now_ms,
                        on_delivery=partial(delivered, now_ms),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(_LIMIT_S) == 0, "not everything was delivered"
        assert not failures, failures[:3]
        return sorted(acked.rows, key=lambda row: (row.partition, row.offset))

    def fill(
        self, topic: str, *, mib: int = 6, partition: int = 0, first: int = 0, **config: Any
    ) -> list[Row]:
        """Records of 1 KiB with distinct keys, that many MiB of them, in one partition."""
        count = mib * 1024
        return self.produce(
            topic,
            ((partition, b"key-%d" % n, text_value()) for n in range(first, first + count)),
            **config,
        )

    def read_all(
        self,
        topic: str,
        *,
        end: Mapping[int, int] | None = None,
        start: Mapping[int, int] | None = None,
        bootstrap: str | None = None,
        timeout_s: float = _LIMIT_S,
        on_row: Callable[[int], None] | None = None,
        **config: Any,
    ) -> list[Row]:
        """Everything from `start` (partition -> offset, default 0) up to `end` (the log ends).

        Any reset of a position is an error: auto.offset.reset=error from explicit offsets.
        """
        ends = dict(end or {p: self.log_end(topic, p) for p in self.partitions(topic)})
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap or self.bootstrap,
                "group.id": f"scenario-{topic}-{time.monotonic_ns()}",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "check.crcs": True,
                **self.client,
                **config,
            }
        )
        consumer.assign([TopicPartition(topic, p, (start or {}).get(p, 0)) for p in ends])
        try:
            return collect(consumer, ends, timeout_s, on_row)
        finally:
            consumer.close()

    def partitions(self, topic: str) -> list[int]:
        return sorted(self.admin.list_topics(topic, timeout=_LIMIT_S).topics[topic].partitions)

    def wait_trimmed(
        self, topic: str, partition: int = 0, *, beyond: int = 0, timeout_s: float = _LIMIT_S
    ) -> int:
        """Wait until the broker's log starts beyond an offset; answers where it starts."""
        what = f"trim of {topic}-{partition} beyond {beyond}"
        self.wait_for(lambda: self.log_start(topic, partition) > beyond, what, timeout_s)
        return self.log_start(topic, partition)

    def trimmed_topic(self, name: str) -> tuple[str, list[Row]]:
        """A new topic whose first records are remote only, and all that was acknowledged."""
        topic = fresh(name)
        self.create_topic(topic)
        acked = self.fill(topic, mib=4)
        self.enable(topic)
        self.wait_trimmed(topic)
        return topic, acked

    def status(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """The row of a partition in `rlm status`, once the service that answers knows of it."""
        asked, found = (topic, partition), list[dict[str, Any]]()

        def is_shown() -> bool:
            rows = self.rlm_json("status")["partitions"]
            found[:] = [row for row in rows if (row["topic"], row["partition"]) == asked]
            return len(found) == 1

        self.wait_for(is_shown, f"the row of {topic}-{partition}")
        return found[0]

    def wait_settled(self, topic: str, partition: int = 0) -> int:
        """Wait until nothing is left to copy or trim; answers where the broker's log starts.

        The status of the trim may be older than the end of the log, so the log is looked at, too.
        """
        self.wait_copied(topic, partition)
        self.wait_for(
            lambda: (
                self.status(topic, partition)["trim_reason"].startswith("all is within")
                and not is_beyond_retention(
                    self._leaders_log_dirs(topic, partition),
                    TopicPartition(topic, partition, self.log_start(topic, partition)),
                    self._kept_bytes.get(topic),
                )
            ),
            f"{topic}-{partition} is within its local retention",
        )
        return self.log_start(topic, partition)

    def wait_copied(self, topic: str, partition: int = 0) -> None:
        """Wait until every segment that is closed now is remote, or was, and nothing is to copy."""
        folders = [
            Path(one) / f"{topic}-{partition}" for one in self._leaders_log_dirs(topic, partition)
        ]
        active = max(int(log.stem) for one in folders for log in one.glob("*.log"))

        def is_copied() -> bool:
            row = self.status(topic, partition)
            ends = (row.get("remote_next_offset"), row.get("remote_log_start_offset"))
            return row["lag_segments"] == 0 and max(one or 0 for one in ends) >= active

        self.wait_for(is_copied, f"{topic}-{partition} is copied up to {active}")

    def _leaders_log_dirs(self, topic: str, partition: int) -> list[str]:
        return [str(one) for one in self.sandbox.log_dirs(self.wait_led(topic, partition))]

    def wait_for_expiration_tasks(self) -> None:
        """Wait until expiration tasks have run again: a topic that is written now is trimmed."""
        topic = fresh("expiration")
        self.create_topic(topic)
        self.enable(topic)
        self.fill(topic, mib=3)
        self.wait_trimmed(topic)

    def wait_for(self, reached: Callable[[], bool], what: str, timeout_s: float = _LIMIT_S) -> None:
        """Poll until true; an AssertionError names what never came, and the last error."""
        deadline = time.monotonic() + timeout_s
        while True:
            failed: Exception | None = None
            try:
                if reached():
                    return
            except _AWAY as error:
                failed = error
            if time.monotonic() >= deadline:
                raise AssertionError(f"{what}: not within {timeout_s} s, {failed}") from failed
            time.sleep(_POLL_S)
