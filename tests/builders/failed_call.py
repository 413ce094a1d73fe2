"""A failed gRPC call as a client sees it."""

from typing import Any

import grpc

from kip405.errors import RemoteStorageError
from rsm_plugins.contract.status import status_of_error


class FailedCall(grpc.RpcError):
    """With a status and trailing metadata of the server."""

    def __init__(self, code: grpc.StatusCode, text: str, trailing: Any = ()) -> None:
        super().__init__(text)
        self._status = code, text, trailing

    @classmethod
    def of(cls, error: RemoteStorageError) -> "FailedCall":
        """As our servers send the error."""
        return cls(*status_of_error(error))

    def code(self) -> grpc.StatusCode:
        return self._status[0]

    def details(self) -> str:
        return self._status[1]

    def trailing_metadata(self) -> Any:
        return self._status[2]
