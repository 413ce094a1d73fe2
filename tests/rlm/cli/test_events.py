"""`rlm events`, `rlm top` and the call ListEvents: decisions of all services, live."""

import asyncio
import json
import os
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from kip405.ids import PartitionKey
from rlm.cli import live
from rlm.cli.top import Frame, show_frame
from rlm.tasks.pool import TaskPool
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from tests.builders.cutting_tcp import CuttingTcp
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.api.harness import Node, api_node
from tests.rlm.api.node_fakes import say_alive
from tests.rlm.api.test_admin_service import call
from tests.rlm.cli.invoking import as_json, asked, assert_one_line
from tests.rlm.tasks.test_decisions import COPIED
from tests.rlm.topics.cluster import Cluster


def decide(node: Node, partition: int, copied: int) -> None:
    key, tasks = PartitionKey(TOPIC_ID, partition), node.reports.tasks
    tasks.copied[key] = replace(COPIED, copied_next_offset=copied)
    tasks.decisions.copy_ended(key)


async def test_events_of_all_services_come_by_time() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await one.service.settings.barrier(1)
        decide(one, 0, 10)
        two.reports.tasks.clock.now += 5
        decide(two, 1, 20)
        one.reports.tasks.clock.now += 9
        decide(one, 0, 30)
        shown = await as_json(one, "events")
        lines = (await asked(one, "events", "--last", "2")).stdout.splitlines()
    found = [(row["node_id"], row["partition"]) for row in shown["events"]]
    assert found == [(1, 0), (2, 1), (1, 0)]
    assert [row["node_id"] for row in shown["sources"]] == [1, 2]
    assert len(lines) == 2 and f"broker 2  copy     {TOPIC}-1  remote up to 20; " in lines[0]


async def test_only_new_events_of_a_topic_are_asked_for() -> None:
    async with api_node(Cluster()) as node:
        decide(node, 0, 10)
        request = pb.ListEventsRequest(topic=TOPIC)
        first = await call(node, "ListEvents", request)
        request.after[1] = first.events[0].number
        assert list((await call(node, "ListEvents", request)).events) == []
        decide(node, 0, 20)
        [second] = (await call(node, "ListEvents", request)).events
        assert second.text.startswith("remote up to 20")
        other = await call(node, "ListEvents", pb.ListEventsRequest(topic="other"))
        assert list(other.events) == []


async def test_h38_a_service_that_does_not_answer_is_named() -> None:
    async with api_node(Cluster()) as node:
        await say_alive(node.service, 2, "127.0.0.1:1")
        done = await asked(node, "events")
    assert done.exit_code == 0
    assert "warning: unknown: the events of broker 2" in done.stderr


async def rlm_process(address: str, *arguments: str) -> Any:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rlm.cli.main", *arguments, "--address", address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_follow_shows_each_event_once_until_it_is_terminated() -> None:
    async with api_node(Cluster()) as node:
        decide(node, 0, 10)
        process = await rlm_process(node.address, "events", "--follow", "--json")
        first = json.loads(await process.stdout.readline())
        decide(node, 0, 20)
        second = json.loads(await process.stdout.readline())
        process.terminate()
        rest, errors = await process.communicate()
    assert (first["text"][:15], second["text"][:15]) == ("remote up to 10", "remote up to 20")
    assert (process.returncode, rest, errors) == (0, b"", b"")


async def test_follow_goes_on_when_the_service_answers_again() -> None:
    async with api_node(Cluster()) as node, CuttingTcp(int(node.address.split(":")[1])) as between:
        decide(node, 0, 10)
        address = f"127.0.0.1:{between.port}"
        process = await rlm_process(address, "events", "--follow", "--json")
        await process.stdout.readline()
        between.cut_requests_after = 0
        between.cut()
        silent = (await process.stderr.readline()).decode()
        decide(node, 0, 20)
        between.cut_requests_after = None
        second = json.loads(await process.stdout.readline())
        again = (await process.stderr.readline()).decode()
        process.terminate()
        rest, errors = await process.communicate()
    assert silent.startswith("warning: no events for now: ") and "asking again" in silent
    assert again == f"warning: the service at {address} answers again\n"
    assert second["text"].startswith("remote up to 20")
    assert (process.returncode, rest, errors) == (0, b"", b"")


async def test_a_topic_that_is_not_known_is_an_error_and_one_without_events_is_not() -> None:
    async with api_node(Cluster()) as node:
        for more in ((), ("--follow",)):
            assert_one_line(await asked(node, "events", "nosuch", *more), "nosuch", status=1)
        assert_one_line(await asked(node, "events", TOPIC), "is not enabled", status=1)
        await as_json(node, "topics", "enable", TOPIC)
        quiet = await asked(node, "events", TOPIC)
        assert (quiet.exit_code, quiet.output) == (0, "")


@asynccontextmanager
async def running(pool: TaskPool, key: PartitionKey) -> AsyncIterator[None]:
    """A job that does not end by itself."""
    began = asyncio.Event()

    async def job() -> None:
        began.set()
        await asyncio.Event().wait()

    pool.submit(key, job)
    worker = asyncio.create_task(pool.run())
    await began.wait()
    try:
        yield
    finally:
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker


async def test_top_prints_one_frame_of_all_it_knows() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        async with running(node.reports.tasks.copy_pool, PartitionKey(TOPIC_ID, 1)):
            done = await asked(node, "top", "--once")
            shown = await as_json(node, "top")
    assert done.exit_code == 0, done.output
    assert "2 partitions, 4.0 KiB to copy, copies in flight: 1" in done.stdout
    [row] = [line for line in done.stdout.splitlines() if line.startswith(f"{TOPIC}-1")]
    assert "copying" in row
    assert shown["running"] == [
        {"node_id": 1, "tasks": [{"pool": "copy", "topic": TOPIC, "partition": 1}]}
    ]


async def test_top_goes_on_until_it_is_terminated() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        process = await rlm_process(node.address, "top", "--interval", "0.2")
        frames = 0
        while frames < 2:
            frames += b"copies in flight" in await process.stdout.readline()
        process.terminate()
        await process.communicate()
    assert process.returncode == 0


def frame(lags: dict[int, int | None], *, given: int = 0, taken_ms: int = 0) -> Frame:
    partitions = [
        fetch_pb2.PartitionDescription(topic="t", partition=number, lag_bytes=lag, lag_segments=lag)
        for number, lag in lags.items()
    ]
    topics = [pb.ClientTopic(topic="t", remote_bytes=given)]
    return Frame(
        at_ms=0,
        taken_ms=taken_ms,
        status=pb.StatusResponse(partitions=partitions),
        events=pb.ListEventsResponse(),
        clients=pb.ListClientsResponse(clients=[pb.KafkaClient(principal="ann", topics=topics)]),
        unknown=["readers of one: no answer"],
    )


def test_h38_partitions_are_by_lag_and_an_unknown_lag_comes_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_frame(frame({0: 5, 1: None, 2: 9, 3: 1}), None, 3)
    lines = capsys.readouterr().out.splitlines()
    assert "15 B to copy and 1 unknown" in lines[0]
    assert [line.split()[0] for line in lines[3:6]] == ["t-1", "t-2", "t-0"]
    assert lines[6] == "and 1 more"
    assert "unknown: readers of one: no answer" in lines


def test_rates_of_readers_are_those_between_two_frames(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = frame({}, given=1_024), frame({}, given=5_120, taken_ms=2_000)
    show_frame(first, None, 5)
    assert "ann" in capsys.readouterr().out
    show_frame(second, first, 5)
    assert "2.0 KiB/s" in capsys.readouterr().out


def test_an_interrupt_is_a_good_end() -> None:
    for error in (live.Ended, KeyboardInterrupt):
        with live.until_ended():
            raise error


async def test_the_key_q_ends_top_on_a_terminal() -> None:
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rlm.cli.main", "top", "--address", node.address),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        shown = b""
        while b"copies in flight" not in shown:
            shown += await asyncio.to_thread(os.read, ours, 4096)
        os.write(ours, b"q")
        status = await process.wait()
    assert status == 0
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
