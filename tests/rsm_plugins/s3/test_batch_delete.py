"""Many segments deleted by one call: the requests, their order, and what a failure keeps."""

import asyncio
import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kip405.errors import ErrorKind, Invalid, RemoteStorageError, Unavailable
from kip405.ids import TopicIdPartition
from kip405.segments import SegmentLocator
from rsm_plugins.layout.keys import ObjectKind, object_name
from rsm_plugins.s3.objects import DELETE_KEYS_MAX
from tests.rsm_plugins.s3.recording import Answer, Asked, failed, recording_server, xml
from tests.rsm_plugins.s3.stores import new_uuid, open_store, subject_of
from tests.rsm_plugins.s3.test_faults import Waits, store_at

KEYS = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
DATE = "Sat, 21 Nov 2026 12:00:00 GMT"
Answers = tuple[RemoteStorageError | None, ...]


@dataclass(slots=True, kw_only=True)
class Bucket:
    """Answers deletions and listings of uploads; keeps what was asked for, in order.

    `refuses`: code by a part of the key, `times` times each. `without`: requests that it does not
    know. `server`: what it calls itself. `uploads`: keys of unfinished uploads.
    """

    refuses: dict[str, str] = field(default_factory=dict)
    times: int = 1000
    without: tuple[str, ...] = ()
    server: str = ""
    uploads: list[str] = field(default_factory=list)
    deleted: list[list[str]] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    _refused: dict[str, int] = field(default_factory=dict)

    async def answer(self, asked: Asked) -> Answer:
        name = self._step(asked)
        self.steps.append(name)
        if name in self.without:
            return failed(501, "NotImplemented")
        key = asked.path.removeprefix("/bucket/")
        if name == "DeleteObjects":
            return self._delete_objects(asked)
        if name == "ListMultipartUploads":
            return self._list(asked.query.get("prefix", ""))
        if name == "AbortMultipartUpload":
            self.uploads.remove(key)
            self.aborted.append(key)
        if name == "DeleteObject":
            self.deleted.append([key])
        if name == "ListParts":
            return failed(404, "NoSuchUpload")
        return Answer(status=204)

    @staticmethod
    def _step(asked: Asked) -> str:
        if asked.method == "POST" and "delete" in asked.query:
            return "DeleteObjects"
        if asked.method == "GET":
            return "ListMultipartUploads" if "uploads" in asked.query else "ListParts"
        return "AbortMultipartUpload" if "uploadId" in asked.query else "DeleteObject"

    def _delete_objects(self, asked: Asked) -> Answer:
        digest = hashlib.md5(asked.body, usedforsecurity=False).digest()
        assert asked.headers["content-md5"] == base64.b64encode(digest).decode()
        assert "content-md5" in asked.headers["authorization"]
        assert asked.headers["x-amz-checksum-crc32"]
        assert b"<Quiet>true</Quiet>" in asked.body
        keys = re.findall("<Key>(.*?)</Key>", asked.body.decode())
        self.deleted.append(keys)
        errors = "".join(filter(None, (self._error(key) for key in keys)))
        return xml(f"<DeleteResult>{errors}</DeleteResult>")

    def _error(self, key: str) -> str:
        code = next((code for part, code in self.refuses.items() if part in key), None)
        self._refused[key] = self._refused.get(key, 0) + 1
        if code is None or self._refused[key] > self.times:
            return ""
        return f"<Error><Key>{key}</Key><Code>{code}</Code></Error>"

    def _list(self, prefix: str) -> Answer:
        self.listed.append(prefix)
        found = [key for key in self.uploads if key.startswith(prefix)]
        if self.server:
            found = [key for key in found if key == prefix]
        items = "".join(
            f"<Upload><Key>{key}</Key><UploadId>u</UploadId>"
            "<Initiated>2026-11-20T00:00:00.000Z</Initiated></Upload>"
            for key in found
        )
        headers = {"date": DATE} | ({"server": self.server} if self.server else {})
        return replace(xml(f"<R>{items}</R>"), headers=headers)


def partition() -> TopicIdPartition:
    return TopicIdPartition(topic_id=new_uuid(), topic="topic", partition=0)


async def deleted(bucket: Bucket, locators: Sequence[SegmentLocator]) -> Answers:
    """The answers of one call."""
    async with recording_server(bucket.answer) as server, store_at(server, Waits()) as store:
        return await store.delete_log_segments(locators)


@pytest.fixture
async def locators(tmp_path: Path) -> list[SegmentLocator]:
    """Three segments of one partition."""
    async with open_store(recorded_nowhere()) as store:
        subject = subject_of(store, tmp_path)
        one = partition()
        return [subject.locator(one, n) for n in range(3)]


def recorded_nowhere() -> dict[str, object]:
    rows = {f"rsm.config.{key.replace('_', '.')}": value for key, value in KEYS.items()}
    return {"rsm.config.s3.bucket.name": "bucket", **rows}


def log_of(locator: SegmentLocator) -> str:
    return object_name(locator, ObjectKind.LOG)


def kinds(answers: Answers) -> list[ErrorKind | None]:
    return [None if error is None else error.kind for error in answers]


async def test_g4_manifests_go_first_then_uploads_then_the_rest(
    locators: list[SegmentLocator],
) -> None:
    bucket = Bucket()
    assert await deleted(bucket, locators) == (None, None, None)
    assert bucket.steps == ["DeleteObjects", "ListMultipartUploads", "DeleteObjects"]
    manifests, rest = bucket.deleted
    assert all(key.endswith(".rsm-manifest") for key in manifests)
    assert len(manifests) == 3
    assert not any(key.endswith(".rsm-manifest") for key in rest)
    assert len(rest) == 6


async def test_more_than_one_request_takes(tmp_path: Path) -> None:
    async with open_store(recorded_nowhere()) as store:
        subject, one = subject_of(store, tmp_path), partition()
        many = [subject.locator(one, n) for n in range(DELETE_KEYS_MAX + 3)]
    bucket = Bucket()
    assert set(await deleted(bucket, many)) == {None}
    assert sorted(map(len, bucket.deleted)) == [3, 6, 1000, 1000, 1000]
    assert len({key for keys in bucket.deleted for key in keys}) == 3 * len(many)


async def test_g4_a_manifest_that_stays_keeps_its_data_and_no_other(
    locators: list[SegmentLocator],
) -> None:
    kept = str(locators[1].segment_id.id)
    bucket = Bucket(refuses={f"{kept}.rsm-manifest": "AccessDenied"})
    answers = await deleted(bucket, locators)
    assert kinds(answers) == [None, ErrorKind.UNAVAILABLE, None]
    assert f"{kept}.rsm-manifest: AccessDenied" in str(answers[1])
    assert [len(keys) for keys in bucket.deleted] == [3, 4]
    assert not any(kept in key for key in bucket.deleted[1])


async def test_an_object_that_stays_is_the_error_of_its_segment(
    locators: list[SegmentLocator],
) -> None:
    stays = object_name(locators[2], ObjectKind.INDEXES)
    answers = await deleted(Bucket(refuses={stays: "ObjectLocked"}), locators)
    assert kinds(answers) == [None, None, ErrorKind.INVALID]
    assert stays in str(answers[2])


@pytest.mark.parametrize("key", ["", "<Key>another</Key>"], ids=["no key", "a key not asked for"])
async def test_g4_a_failure_that_names_no_object_of_ours_keeps_all_data(
    key: str, locators: list[SegmentLocator]
) -> None:
    """One manifest stayed and it is not said which: no log goes."""

    async def answer(asked: Asked) -> Answer:
        bodies.append(asked.body)
        return xml(f"<DeleteResult><Error>{key}<Code>AccessDenied</Code></Error></DeleteResult>")

    bodies: list[bytes] = []
    async with recording_server(answer) as server, store_at(server, Waits()) as store:
        answers = await store.delete_log_segments(locators)
    assert kinds(answers) == [ErrorKind.UNAVAILABLE] * 3
    assert len(bodies) == 1
    assert b".log<" not in bodies[0]


async def test_throttled_objects_are_tried_again_and_no_others(
    locators: list[SegmentLocator],
) -> None:
    slow = object_name(locators[0], ObjectKind.MANIFEST)
    bucket = Bucket(refuses={slow: "SlowDown"}, times=3)
    assert await deleted(bucket, locators) == (None, None, None)
    assert [len(keys) for keys in bucket.deleted] == [3, 1, 1, 1, 6]


async def test_objects_that_stay_throttled_are_unavailable(locators: list[SegmentLocator]) -> None:
    slow = object_name(locators[0], ObjectKind.MANIFEST)
    bucket = Bucket(refuses={slow: "SlowDown"})
    answers = await deleted(bucket, locators)
    assert kinds(answers) == [ErrorKind.UNAVAILABLE, None, None]
    assert [len(keys) for keys in bucket.deleted] == [3, *[1] * 7, 4]


async def test_absent_objects_are_deleted(locators: list[SegmentLocator]) -> None:
    """Some servers say of each that it was not there."""
    bucket = Bucket(refuses={"": "NoSuchKey"})
    assert await deleted(bucket, locators) == (None, None, None)


async def test_a_server_without_the_request_is_asked_for_each_object(
    locators: list[SegmentLocator],
) -> None:
    bucket = Bucket(without=("DeleteObjects",))
    async with recording_server(bucket.answer) as server, store_at(server, Waits()) as store:
        for _ in range(2):
            assert await store.delete_log_segments(locators) == (None, None, None)
    names = [key.rpartition(".")[2] for keys in bucket.deleted for key in keys]
    assert names[:3] == ["rsm-manifest"] * 3
    assert len(names) == 18
    assert bucket.steps.count("DeleteObjects") == 1, "it is remembered"


async def test_a_server_that_refuses_everything_is_asked_for_many_again(
    locators: list[SegmentLocator],
) -> None:
    """A refusal that does not tell the two requests apart is not remembered."""
    bucket = Bucket(without=("DeleteObjects", "DeleteObject"))
    async with recording_server(bucket.answer) as server, store_at(server, Waits()) as store:
        answers = await store.delete_log_segments(locators)
        assert kinds(answers) == [ErrorKind.INVALID] * 3
        bucket.without = ()
        assert await store.delete_log_segments(locators) == (None, None, None)
    assert bucket.steps[-3:] == ["DeleteObjects", "ListMultipartUploads", "DeleteObjects"]


async def test_a_server_that_does_not_list_uploads_has_none(locators: list[SegmentLocator]) -> None:
    bucket = Bucket(without=("ListMultipartUploads",))
    assert await deleted(bucket, locators) == (None, None, None)
    assert len(bucket.deleted) == 2


@pytest.mark.parametrize("server", ["", "MinIO"], ids=["by prefix", "by whole names only"])
async def test_unfinished_uploads_of_exactly_these_segments_are_aborted(
    server: str, locators: list[SegmentLocator]
) -> None:
    ours = [log_of(locator) for locator in locators[:2]]
    others = [log_of(locators[2]), f"{ours[0]}.bak", ours[0][:-1]]
    bucket = Bucket(uploads=[*ours, *others], server=server)
    assert await deleted(bucket, locators[:2]) == (None, None)
    assert sorted(bucket.aborted) == sorted(ours)
    assert bucket.uploads == others
    assert len(bucket.listed) == (3 if server else 1)


async def test_segments_of_several_partitions_are_listed_by_partition(tmp_path: Path) -> None:
    async with open_store(recorded_nowhere()) as store:
        subject = subject_of(store, tmp_path)
        locators = [subject.locator(partition(), n) for n in range(2)]
    bucket = Bucket()
    assert await deleted(bucket, locators) == (None, None)
    assert sorted(bucket.listed) == sorted(log_of(locator) for locator in locators)
    assert len(bucket.deleted) == 2


async def test_an_upload_that_does_not_go_away_keeps_its_log(
    locators: list[SegmentLocator],
) -> None:
    async def answer(asked: Asked) -> Answer:
        if asked.method == "DELETE":
            return failed(403, "AccessDenied")
        return await bucket.answer(asked)

    bucket = Bucket(uploads=[log_of(locators[1])])
    async with recording_server(answer) as server, store_at(server, Waits()) as store:
        answers = await store.delete_log_segments(locators)
    assert kinds(answers) == [None, ErrorKind.UNAVAILABLE, None]
    assert not any(str(locators[1].segment_id.id) in key for key in bucket.deleted[1])


async def test_a_listing_of_uploads_that_fails_keeps_all_logs(
    locators: list[SegmentLocator],
) -> None:
    async def answer(asked: Asked) -> Answer:
        if asked.method == "GET":
            return failed(503, "SlowDown")
        return await bucket.answer(asked)

    bucket = Bucket()
    async with recording_server(answer) as server, store_at(server, Waits()) as store:
        answers = await store.delete_log_segments(locators)
    assert kinds(answers) == [ErrorKind.UNAVAILABLE] * 3
    assert len(bucket.deleted) == 1


@pytest.mark.parametrize("at", ["POST", "GET"], ids=["manifests", "uploads"])
async def test_g1_nothing_more_is_asked_for_after_a_call_was_cancelled(
    at: str, locators: list[SegmentLocator]
) -> None:
    asked, entered, go = list[str](), asyncio.Event(), asyncio.Event()

    async def answer(request: Asked) -> Answer:
        asked.append(request.method)
        if request.method == at:
            entered.set()
            await go.wait()
        return await bucket.answer(request)

    bucket = Bucket()
    async with recording_server(answer) as server, store_at(server, Waits()) as store:
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(store.delete_log_segments(locators))
            await entered.wait()
            call.cancel()
        go.set()
        await store.delete_log_segment_data(locators[0])
    assert asked[: len(asked) - 4] == (["POST"] if at == "POST" else ["POST", "GET"])


async def test_what_cannot_be_is_not_asked_for(locators: list[SegmentLocator]) -> None:
    wrong = replace(locators[1], cluster_id="../x")
    bucket = Bucket()
    answers = await deleted(bucket, [locators[0], wrong, locators[2]])
    assert kinds(answers) == [None, ErrorKind.INVALID, None]
    assert isinstance(answers[1], Invalid)
    assert [len(keys) for keys in bucket.deleted] == [2, 4]


async def test_a_page_of_a_proxy_deletes_nothing(locators: list[SegmentLocator]) -> None:
    async def answer(asked: Asked) -> Answer:
        return Answer(status=404, body=b"<html>404 page not found</html>")

    async with recording_server(answer) as server, store_at(server, Waits()) as store:
        answers = await store.delete_log_segments(locators)
    assert all(isinstance(error, Unavailable) for error in answers)
