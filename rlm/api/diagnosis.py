"""What each service knows of itself, for Diagnose, and answers without secrets."""

from collections.abc import Mapping
from typing import Protocol

from google.protobuf.message import Message

from rlm.api.fan_out import answers_of_others
from rlm.api.peers import Peers
from rlm.v1 import admin_pb2 as pb


class Documents(Protocol):
    """What this service knows of itself (rlm.service.diagnosis)."""

    async def documents(self) -> Mapping[str, bytes]:
        """By file name; no record data, no secret, each of a few MiB at most."""
        ...

    async def mask(self, answer: Message) -> None:
        """Replace the secrets that this process knows in every text of the answer."""
        ...


class ClusterDiagnosis:
    """Owns nothing."""

    def __init__(self, *, peers: Peers, documents: Documents) -> None:
        self._peers = peers
        self._documents = documents

    async def own(self) -> pb.DiagnoseResponse:
        """Of this service alone."""
        found = await self._documents.documents()
        one = pb.ServiceDocuments(node_id=self._peers.node_id, documents=found)
        return pb.DiagnoseResponse(services=[one])

    async def whole(self, principal: str) -> pb.DiagnoseResponse:
        """Of all services, by node id; one that does not answer is a row with the reason."""
        rows = list((await self.own()).services)
        request = pb.DiagnoseRequest(local_only=True)
        answers, problems = await answers_of_others(
            self._peers, lambda stubs: stubs.admin.Diagnose, request, principal
        )
        rows += [row for answer in answers for row in answer.services]
        rows += [pb.ServiceDocuments(node_id=at, problem=why) for at, why in problems.items()]
        rows.sort(key=lambda row: row.node_id)
        whole = pb.DiagnoseResponse(services=rows)
        await self._documents.mask(whole)
        return whole

    async def masked_status(self, encoded: bytes) -> bytes:
        """An answer of Status without the secrets of this service."""
        answer = pb.StatusResponse.FromString(encoded)
        await self._documents.mask(answer)
        return answer.SerializeToString()

    async def masked_events(self, answer: pb.ListEventsResponse) -> pb.ListEventsResponse:
        """An answer of ListEvents without the secrets of this service."""
        await self._documents.mask(answer)
        return answer
