"""Consumer groups of an attached reader's Kafka clients, in every version that is offered."""

import asyncio
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol import error_codes as codes
from kafka_protocol.apis import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from kafka_protocol.schema import Api, Value
from rlm.history_proxy import coordinator
from rlm.history_proxy.answers import OFFERED
from rlm.history_proxy.committed import file_name
from rlm.remote_log.attached import AttachedState, view_of_records
from rlmm.settings_records import StartRecord
from tests.builders.ledger import PARTITION
from tests.rlm.history_proxy.served import NUMBER, TOPIC, Client, proxy

SESSION_MS = 10_000


class Member:
    """One member of a group `g`, over connections of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.member_id, self.generation = "", -1

    async def join(self, version: int = 4, **fields: Any) -> Value:
        body = {
            "group_id": "g",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": 60_000,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"s"}],
            **fields,
        }
        found = await self._client.ask(JOIN_GROUP, version, body)
        self.member_id, self.generation = found["member_id"], found["generation_id"]
        return found

    async def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 2) -> Value:
        given = [
            {"member_id": member_id, "assignment": part}
            for member_id, part in (assignments or {}).items()
        ]
        return await self._ask(SYNC_GROUP, version, assignments=given)

    async def beat(self, version: int = 2) -> int:
        error: int = (await self._ask(HEARTBEAT, version))["error_code"]
        return error

    async def leave(self, version: int = 2) -> int:
        body = {"group_id": "g", "member_id": self.member_id}
        error: int = (await self._client.ask(LEAVE_GROUP, version, body))["error_code"]
        return error

    async def _ask(self, api: Api, version: int, **fields: Any) -> Value:
        body = {"group_id": "g", "generation_id": self.generation, "member_id": self.member_id}
        return await self._client.ask(api, version, {**body, **fields})

    async def commit(self, offset: int, version: int = 6, **fields: Any) -> int:
        row = {"partition_index": NUMBER, "committed_offset": offset, "committed_metadata": "m"}
        row |= {"committed_leader_epoch": 2}
        row |= {name: fields.pop(name) for name in tuple(fields) if name in row}
        body = {
            "group_id": "g",
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "topics": [{"name": fields.pop("topic", TOPIC), "partitions": [row]}],
            **fields,
        }
        answer = await self._client.ask(OFFSET_COMMIT, version, body)
        error: int = answer["topics"][0]["partitions"][0]["error_code"]
        return error


async def committed(client: Client, version: int = 7, **fields: Any) -> Value:
    """What OffsetFetch answers about the partition."""
    body = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [NUMBER]}], **fields}
    answer = await client.ask(OFFSET_FETCH, version, body)
    assert answer["error_code"] == codes.NONE
    ((row,),) = (topic["partitions"] for topic in answer["topics"])
    found: Value = row
    return found


def all_of(api: Api) -> range:
    return range(OFFERED[api].low, OFFERED[api].high + 1)


async def test_one_member_in_every_version(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        for version in all_of(FIND_COORDINATOR):
            found = await client.ask(FIND_COORDINATOR, version, {"key": "g"})
            assert (found["error_code"], found["node_id"]) == (codes.NONE, 0)
            assert (found["host"], found["port"]) == ("history.example", 9)
        for version in all_of(JOIN_GROUP):
            member = Member(client)
            answer = await member.join(version)
            if version >= 4:
                assert answer["error_code"] == codes.MEMBER_ID_REQUIRED
                answer = await member.join(version)
            assert (answer["error_code"], answer["leader"]) == (codes.NONE, member.member_id)
            assert answer["members"][0]["metadata"] == b"s"
            for one in all_of(SYNC_GROUP):
                synced = await member.sync({member.member_id: b"part"}, one)
                assert (synced["error_code"], synced["assignment"]) == (codes.NONE, b"part")
            for one in all_of(HEARTBEAT):
                assert await member.beat(one) == codes.NONE
            for one in all_of(OFFSET_COMMIT):
                assert await member.commit(100 + one, one) == codes.NONE
            for one in all_of(OFFSET_FETCH):
                assert (await committed(client, one))["committed_offset"] == 106
            for one in all_of(LEAVE_GROUP):
                expected = codes.NONE if one == 0 else codes.UNKNOWN_MEMBER_ID
                assert await member.leave(one) == expected
        row = await committed(client)
        assert (row["committed_leader_epoch"], row["metadata"]) == (2, "m")
        body = {"group_id": "g", "topics": None}
        everything = (await client.ask(OFFSET_FETCH, 7, body))["topics"]
        assert [(one["name"], len(one["partitions"])) for one in everything] == [(TOPIC, 1)]
        client.groups.expire()
        assert not client.groups._groups


async def test_a_second_member_waits_for_the_first_and_takes_its_part(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        first, second = Member(client), Member(client)
        await first.join(3)
        await first.sync({first.member_id: b"all"})
        joining = asyncio.ensure_future(second.join(3))
        async with asyncio.timeout(60):
            while await first.beat() == codes.NONE:
                pass
            assert (await first.join())["error_code"] == codes.NONE
            assert (await joining)["leader"] == first.member_id
            syncing = asyncio.ensure_future(second.sync())
            parts = {first.member_id: b"1", second.member_id: b"2"}
            assert (await first.sync(parts))["assignment"] == b"1"
            assert (await syncing)["assignment"] == b"2"


async def test_what_is_committed_survives_and_is_of_one_topic(tmp_path: Path) -> None:
    """Of a topic that was created again under the name, nothing is committed."""
    groups, made = tmp_path / "groups", count()

    def fresh() -> Path:
        folder = tmp_path / str(next(made))
        folder.mkdir()
        return folder

    async with proxy(fresh(), groups_in=groups) as (_, client):
        await client.made.read()
        assert await Member(client).commit(7) == codes.NONE
        path = groups / file_name("g")
    async with proxy(fresh(), groups_in=groups) as (_, client):
        assert (await client.ask(OFFSET_FETCH, 5, {"group_id": "g", "topics": None}))[
            "error_code"
        ] == codes.COORDINATOR_LOAD_IN_PROGRESS
        await client.made.read()
        assert (await committed(client))["committed_offset"] == 7
    path.write_text(path.read_text().replace(str(PARTITION.topic_id), "A" * 22))
    async with proxy(fresh(), groups_in=groups) as (_, client):
        await client.made.read()
        assert (await committed(client))["committed_offset"] == -1


async def test_h17_nothing_is_known_of_offsets_before_the_manifests_are_read(
    tmp_path: Path,
) -> None:
    """A client would take -1 for a group that never read, and begin anew."""
    async with proxy(tmp_path) as (_, client):
        body = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [NUMBER]}]}
        for version in all_of(OFFSET_FETCH):
            answer = await client.ask(OFFSET_FETCH, version, body)
            row = answer["topics"][0]["partitions"][0]
            assert row["error_code"] == codes.COORDINATOR_LOAD_IN_PROGRESS
            if version >= 2:
                assert answer["error_code"] == codes.COORDINATOR_LOAD_IN_PROGRESS
        assert await Member(client).commit(7) == codes.COORDINATOR_LOAD_IN_PROGRESS


async def test_what_cannot_be_done_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        member = Member(client)
        for fields, error in (
            ({"group_id": ""}, codes.INVALID_GROUP_ID),
            ({"session_timeout_ms": 5_999}, codes.INVALID_SESSION_TIMEOUT),
            ({"session_timeout_ms": 1_800_001}, codes.INVALID_SESSION_TIMEOUT),
            ({"member_id": "x"}, codes.UNKNOWN_MEMBER_ID),
            (
                {"protocols": [{"name": "range", "metadata": bytes((256 << 10) + 1)}]},
                codes.GROUP_MAX_SIZE_REACHED,
            ),
            (
                {"protocols": [{"name": f"{n:032000}", "metadata": b""} for n in range(9)]},
                codes.GROUP_MAX_SIZE_REACHED,
            ),
        ):
            assert (await Member(client).join(**fields))["error_code"] == error
        assert (await member.sync())["error_code"] == codes.UNKNOWN_MEMBER_ID
        assert await member.beat() == codes.UNKNOWN_MEMBER_ID
        assert await member.commit(-1) == codes.INVALID_COMMIT_OFFSET_SIZE
        too_large = await member.commit(1, committed_metadata="m" * 4_097)
        assert too_large == codes.OFFSET_METADATA_TOO_LARGE
        unknown = await member.commit(1, topic="nothing")
        assert unknown == codes.UNKNOWN_TOPIC_OR_PARTITION
        stranger = await member.commit(1, generation_id_or_member_epoch=3)
        assert stranger == codes.UNKNOWN_MEMBER_ID
        assert (await committed(client))["committed_offset"] == -1
        found = await client.ask(FIND_COORDINATOR, 2, {"key": "t", "key_type": 1})
        assert found["error_code"] == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert "takes no records" in found["error_message"]
        monkeypatch.setattr(coordinator, "MOST_MEMBERS", 1)
        assert (await member.join(3))["error_code"] == codes.NONE
        assert await Member(client).commit(1) == codes.UNKNOWN_MEMBER_ID, "the group has a member"
        refused = await Member(client).join(3, group_id="another")
        assert refused["error_code"] == codes.GROUP_MAX_SIZE_REACHED


async def test_h36_members_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (site, client):
        await client.made.read()
        member = Member(client)
        await member.join(3)
        await member.sync({member.member_id: b"all"})
        site.rig.clock.advance(SESSION_MS)
        client.groups.expire()
        assert not client.groups._groups
        assert await member.beat() == codes.UNKNOWN_MEMBER_ID
        assert await member.commit(9) == codes.UNKNOWN_MEMBER_ID


async def test_h17_a_group_goes_on_where_nothing_is_left_of_a_partition(tmp_path: Path) -> None:
    """All its segments have expired, and there will be others: who was told -1 would reset, and
    skip them with auto.offset.reset=latest.
    """
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        member = Member(client)
        assert await member.commit(400) == codes.NONE
        view = client.made.log.state.view
        rest = [one.record for one in view.records() if not isinstance(one.record, StartRecord)]
        client.made.log.replace(AttachedState(view=view_of_records(rest, view.version)))
        assert (await client.position(-1))["error_code"] == codes.UNKNOWN_TOPIC_OR_PARTITION
        for version in all_of(OFFSET_FETCH):
            assert (await committed(client, version))["committed_offset"] == 400
        assert await member.commit(401) == codes.NONE, "its other partitions would fail with it"
        assert (await committed(client))["committed_offset"] == 401
        for number in (NUMBER + 1, -1):
            unknown = await member.commit(1, partition_index=number)
            assert unknown == codes.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_member_may_take_as_long_for_a_rebalance_as_it_says(tmp_path: Path) -> None:
    """Its max.poll.interval.ms, in which it works on records that are not committed yet."""
    hour_ms = 3_600_000
    timeouts = {"session_timeout_ms": hour_ms // 2, "rebalance_timeout_ms": hour_ms}
    async with proxy(tmp_path) as (site, client), asyncio.timeout(60):
        first, second = Member(client), Member(client)
        await first.join(3, **timeouts)
        await first.sync({first.member_id: b"all"})
        joining = asyncio.ensure_future(second.join(3, **timeouts))
        while await first.beat() == codes.NONE:
            pass
        for _ in range(2):
            site.rig.clock.advance(hour_ms // 2 - 1)
            client.groups.expire()
            assert await first.beat() == codes.REBALANCE_IN_PROGRESS
        assert not joining.done()
        site.rig.clock.advance(2)
        client.groups.expire()
        assert (await joining)["leader"] == second.member_id
