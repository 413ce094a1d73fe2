"""Whether a server puts objects on condition is found out before anything is copied (H10)."""

from collections.abc import Sequence

import pytest

from kip405.contracts import NEEDED_VERSIONS, FindingKind
from kip405.errors import Invalid, Unavailable
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.s3.versions import CONDITION_NAME, Versions
from tests.rsm_plugins.s3.recording import (
    Answer,
    Asked,
    RecordingServer,
    failed,
    recording_server,
    xml,
)
from tests.rsm_plugins.s3.stores import open_store
from tests.rsm_plugins.s3.test_findings import VERSIONING

KEY = f"theirs/{CONDITION_NAME}"
ROWS = {
    "aws_access_key_id": "k",
    "aws_secret_access_key": "s",
    "pinterest_cluster": "c",
    "pinterest_prefix": "theirs",
}
CHANGED = failed(412, "PreconditionFailed")
LISTED = xml(
    f"<ListVersionsResult><Version><Key>{KEY}</Key><VersionId>v1</VersionId></Version>"
    "<IsTruncated>false</IsTruncated></ListVersionsResult>"
)


class Server:
    """Answers a put with what is given, and everything else as a bucket with versions does."""

    def __init__(self, put: Answer) -> None:
        self.put = put

    async def __call__(self, asked: Asked) -> Answer:
        if asked.method == "PUT":
            assert (asked.path, bool(asked.headers["if-match"])) == (f"/bucket/{KEY}", True)
            return self.put
        if asked.method == "DELETE":
            return Answer(status=204)
        if "versions" in asked.query:
            return LISTED
        if "versioning" in asked.query:
            return VERSIONING
        return failed(404, "NoSuchLifecycleConfiguration")


async def state_of(server: RecordingServer, times: int = 1) -> Sequence[str]:
    """What each of several inspections finds of the versions."""
    async with open_store(server.settings(**ROWS)) as store:
        found = [await store.inspect() for _ in range(times)]
    return [one.state for some in found for one in some if one.kind is FindingKind.VERSIONING]


def sent(server: RecordingServer, method: str) -> list[Asked]:
    return [one for one in server.asked if one.method == method]


@pytest.mark.parametrize(
    "put",
    [
        CHANGED,
        failed(404, "NoSuchKey"),
        failed(403, "AccessDenied"),  # of a reader, which writes nothing
    ],
)
async def test_a_server_that_has_conditions_is_asked_once(put: Answer) -> None:
    async with recording_server(Server(put)) as server:
        assert await state_of(server, times=2) == [NEEDED_VERSIONS] * 2
        assert (len(sent(server, "PUT")), sent(server, "DELETE")) == (1, [])


async def test_a_server_that_refuses_conditions_is_found_unfit() -> None:
    async with recording_server(Server(failed(501, "NotImplemented"))) as server:
        (state,) = await state_of(server)
    assert state.startswith("unfit: the server does not put objects on condition of an ETag")
    assert "another storage.layout" in state


async def test_a_server_that_passes_conditions_over_is_found_unfit_and_nothing_stays() -> None:
    async with recording_server(Server(Answer(headers={"etag": '"e"'}))) as server:
        (state,) = await state_of(server)
        (removed,) = sent(server, "DELETE")
        assert (removed.path, removed.query["versionId"]) == (f"/bucket/{KEY}", "v1")
    assert state.startswith("unfit: the server does not put objects on condition of an ETag")


async def test_what_cannot_be_asked_is_not_known() -> None:
    async with recording_server(Server(failed(403, "InvalidAccessKeyId"))) as server:
        (state,) = await state_of(server)
    assert state.startswith("unfit: it is not known whether the layout pinterest can be written")


async def test_a_copy_is_refused_before_it_begins() -> None:
    answering = Server(failed(501, "NotImplemented"))
    async with recording_server(answering) as server, open_store(server.settings(**ROWS)) as store:
        versions = _versions(store)
        with pytest.raises(Invalid, match="on condition of an ETag"):
            await versions.check_bucket()
        answering.put = failed(403, "InvalidAccessKeyId")
        with pytest.raises(Unavailable):
            await versions.check_bucket()
        answering.put = CHANGED
        await versions.check_bucket()


def _versions(store: object) -> Versions:
    assert isinstance(store, S3RemoteStorageManager) and store._pinterest is not None
    return store._pinterest.versions
