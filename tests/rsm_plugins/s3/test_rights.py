"""The policy of a service is what its requests need, and that of a reader lets nothing be changed.

The server knows accounts and policies of buckets: an account may do what a policy allows it, and
nothing else. What it cannot decide, because it does not know a request, the record of all requests
shows.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from kip405.contracts import RemoteStorageManager, StoreIdentity
from kip405.errors import NotFound, RemoteStorageError, Unavailable
from kip405.segments import ByteRange
from rsm_plugins.conformance.broken_copies import flipped_bits_in_parts_are_found_at_copy
from rsm_plugins.conformance.subject import StoredSegment, Subject
from rsm_plugins.s3.rights import RIGHTS, PolicyScope, Resource, StoreRole, policy
from tests.builders.cutting_proxy import CuttingProxy
from tests.builders.s3_requests import Asked
from tests.rsm_plugins.faults.operations import LARGE, MANIFEST, OPERATIONS
from tests.rsm_plugins.harness import PREFIX, new_uuid
from tests.rsm_plugins.s3.test_requests import copied
from tests.rsm_plugins.stores import DIRECT, StoreRig, opened, s3_rig
from tests.store_servers import READER, SERVICE, S3Server

pytestmark = pytest.mark.timeout(300)
ACCOUNTS = {StoreRole.SERVICE: SERVICE, StoreRole.READER: READER}
Call = Callable[[RemoteStorageManager, StoredSegment], Coroutine[Any, Any, Any]]


def rig_of(server: S3Server, role: StoreRole, prefix: str = PREFIX) -> tuple[StoreRig, StoreRig]:
    """A bucket as its owner sees it, and as one sees it who has the rights of a role and no others.

    `prefix` is that of the policy.
    """
    rig = s3_rig(server)
    bucket = str(rig.rows["rsm.config.s3.bucket.name"])
    server.put_policy(
        bucket, policy(role, PolicyScope(bucket=bucket, prefix=prefix), ACCOUNTS[role])
    )
    own, theirs = server.settings(bucket), server.as_account(ACCOUNTS[role]).settings(bucket)
    return replace(rig, rows={**rig.rows, **own}), replace(rig, rows={**rig.rows, **theirs})


def actions_on(document: Any, asked: Asked) -> set[str]:
    """The actions that a policy allows on what a request is for."""
    arn = f"arn:aws:s3:::{asked.bucket}" + (f"/{asked.key}" if asked.key else "")
    if asked.operation == "DeleteObjects":  # the server authorizes each key of its body
        arn = f"arn:aws:s3:::{asked.bucket}/{PREFIX}/each"
    return {
        action
        for one in document["Statement"]
        if fnmatchcase(arn, one["Resource"])
        for action in one["Action"]
    }


async def test_a_service_needs_its_policy_and_no_more(s3_server: S3Server, tmp_path: Path) -> None:
    """The conformance suite passes with that policy too: every `s3_rig` has it."""
    rig = s3_rig(s3_server)
    scope = PolicyScope(bucket=str(rig.rows["rsm.config.s3.bucket.name"]), prefix=PREFIX)
    document = policy(StoreRole.SERVICE, scope)
    rows = {row.operation: row for row in RIGHTS if row.resource is not Resource.KEY}
    async with CuttingProxy(s3_server.port) as proxy:
        through = {**rig.rows, "rsm.config.s3.endpoint.url": proxy.endpoint}
        async with opened(replace(rig, rows=through), DIRECT, tmp_path) as subject:
            await use_all(subject)
        assert proxy.statuses[403] == 0
        recorded = set(proxy.asked)
    used = set()
    for asked in recorded:
        action = rows[asked.operation].action
        assert action in actions_on(document, asked), asked
        assert asked.key.startswith(f"{PREFIX}/") or not asked.key
        used.add(action)
    assert {asked.operation for asked in recorded} == set(rows)
    assert used == {action for one in document["Statement"] for action in one["Action"]}
    listings = {one for one in recorded if one.operation.startswith("List") and not one.key}
    assert {one.prefix.startswith(f"{PREFIX}/") for one in listings} == {True}


async def use_all(subject: Subject) -> None:
    """Everything that a service does with a store: each call of the contract, copies that fail, and
    the sweep.
    """
    await subject.ensure_identity()
    for operation in OPERATIONS:
        segment = subject.segment(log_size_bytes=operation.log_size_bytes)
        if operation.stored:
            await subject.copy(segment)
            await subject.manager.write_manifest(segment.locator, MANIFEST)
        await operation.run(subject, segment)
    await flipped_bits_in_parts_are_found_at_copy(subject)
    await subject.manager.inspect()
    assert subject.sweep is not None
    assert await subject.sweep(0) == 0


WRITES: tuple[Call, ...] = (
    lambda manager, segment: manager.copy_log_segment_data(segment.locator, segment.data),
    lambda manager, segment: manager.write_manifest(segment.locator, b'{"v":2}'),
    lambda manager, segment: manager.delete_log_segment_data(segment.locator),
)


async def test_a_reader_reads_and_changes_nothing(s3_server: S3Server, tmp_path: Path) -> None:
    own, rig = rig_of(s3_server, StoreRole.READER)
    async with opened(own, DIRECT, tmp_path) as owner, opened(rig, DIRECT, tmp_path) as reader:
        await owner.ensure_identity()
        small, large = owner.segment(), owner.segment(log_size_bytes=LARGE)
        for segment in (small, large):
            await owner.copy(segment)
        await owner.manager.write_manifest(small.locator, MANIFEST)
        before = own.hands.names()
        manager = reader.manager
        assert await manager.read_identity() == await owner.manager.read_identity()
        assert await manager.read_manifest(small.locator) == MANIFEST
        assert await manager.fetch_indexes(small.locator) == small.data.indexes
        found = await manager.fetch_log_segment(small.locator, ByteRange(start=7, end=99))
        assert bytes(found) == small.log[7:99]  # type: ignore[arg-type] # never a slice of a file
        listed = {one.name async for one in manager.list_objects(small.locator.cluster_id)}
        assert len(listed) == 5
        with pytest.raises(NotFound):
            await manager.read_manifest(large.locator)
        for segment in (small, large):
            for write in WRITES:
                with pytest.raises(Unavailable) as refused:
                    await write(manager, segment)
                assert "AccessDenied" in str(refused.value), write
        assert None not in await manager.delete_log_segments([small.locator, large.locator])
        assert own.hands.names() == before
        assert await owner.fetch(large.locator, 0, LARGE) == large.log


async def test_rights_end_at_the_prefix(s3_server: S3Server, tmp_path: Path) -> None:
    """A service of another cluster in the same bucket."""
    own, rig = rig_of(s3_server, StoreRole.SERVICE, prefix="another")
    async with opened(own, DIRECT, tmp_path) as owner, opened(rig, DIRECT, tmp_path) as other:
        await owner.ensure_identity()
        segment = owner.segment()
        await owner.copy(segment)
        before = own.hands.names()
        identity = StoreIdentity(store_id=new_uuid(), cluster_id="another", created_ms=1)
        calls: tuple[Coroutine[Any, Any, Any], ...] = (
            other.manager.read_identity(),
            other.manager.create_identity(identity),
            other.manager.fetch_indexes(segment.locator),
            *(write(other.manager, segment) for write in WRITES),
        )
        for call in calls:
            with pytest.raises(Unavailable, match="AccessDenied"):
                await call
        with suppress(RemoteStorageError):
            await other.manager.delete_log_segments([segment.locator])
        assert own.hands.names() == before


async def test_a_key_is_needed_for_what_is_encrypted_with_it(tmp_path: Path) -> None:
    """Nothing here asks a KMS: S3 does so for each request that names a key."""
    asked = await copied(
        tmp_path, 6 << 20, s3_sse_type="aws:kms", s3_sse_kms_key_id="arn:aws:kms:e:1:key/k"
    )
    naming = {
        "CreateMultipartUpload" if one.method == "POST" else "PutObject"
        for one in asked
        if "x-amz-server-side-encryption-aws-kms-key-id" in one.headers
    }
    of_key = [row for row in RIGHTS if row.resource is Resource.KEY]
    assert naming == {row.operation for row in of_key if row.action == "kms:GenerateDataKey"}
