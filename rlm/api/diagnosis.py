"""What each service knows of itself, for Diagnose."""

from collections.abc import Mapping
from typing import Protocol

from kip405.errors import RemoteStorageError
from rlm.api.fan_out import ask_others
from rlm.api.peers import Peers
from rlm.v1 import admin_pb2 as pb


class Documents(Protocol):
    """What this service knows of itself (rlm.service.diagnosis)."""

    async def documents(self) -> Mapping[str, bytes]:
        """By file name; no record data, no secret, each of a few MiB at most."""
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
        answers = await ask_others(
            self._peers,
            lambda stubs, sent, timeout: stubs.admin.Diagnose(
                request, metadata=sent, timeout=timeout
            ),
            principal,
        )
        for peer, answer in answers:
            if isinstance(answer, RemoteStorageError):
                rows.append(pb.ServiceDocuments(node_id=peer.node_id, problem=str(answer)))
            else:
                rows += answer.services
        rows.sort(key=lambda row: row.node_id)
        return pb.DiagnoseResponse(services=rows)
