"""Commands of the API from within the service, as the console gives them for a browser.

They go the way of rlm.api.local_calls: the same gate, rights, services and audit log as by gRPC. No
command that deletes anything, or that lets a deletion go on, can be given here.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Protocol

import grpc

from rlm.api.authorization import Authorization
from rlm.api.local_calls import ADMIN, LocalCaller, LocalMethods
from rlm.api.strangers import Handler
from rlm.v1 import admin_pb2 as pb
from rsm_plugins.contract.answering import Context


class AdminCommands(Protocol):
    """What is called of rlm.v1.AdminService."""

    async def UndoDeletion(self, request: Any, context: Context) -> Any: ...

    async def SetCopyLimit(self, request: Any, context: Context) -> Any: ...

    async def Freeze(self, request: Any, context: Context) -> Any: ...

    def Verify(self, request: Any, context: Context) -> AsyncIterator[Any]: ...

    def CopyClosed(self, request: Any, context: Context) -> AsyncIterator[Any]: ...


class LocalCommands:
    """Commands to this service, which forwards them where another has to carry them out."""

    def __init__(self, admin: AdminCommands, authorization: Authorization | None) -> None:
        one, many = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        handlers: Mapping[str, Handler] = {
            f"/{ADMIN}/UndoDeletion": one(admin.UndoDeletion),
            f"/{ADMIN}/SetCopyLimit": one(admin.SetCopyLimit),
            f"/{ADMIN}/Freeze": one(admin.Freeze),
            f"/{ADMIN}/Verify": many(admin.Verify),
            f"/{ADMIN}/CopyClosed": many(admin.CopyClosed),
        }
        self._methods = LocalMethods(handlers, authorization)

    async def undo_deletion(
        self, request: pb.UndoDeletionRequest, caller: LocalCaller
    ) -> pb.TopicDescription:
        """See proto/rlm/v1/admin.proto, as of the calls below. They raise CallRefused."""
        return await self._methods.answer(
            f"/{ADMIN}/UndoDeletion", request, caller, pb.TopicDescription
        )

    async def set_copy_limit(
        self, request: pb.SetCopyLimitRequest, caller: LocalCaller
    ) -> pb.ListCopyLimitsResponse:
        return await self._methods.answer(
            f"/{ADMIN}/SetCopyLimit", request, caller, pb.ListCopyLimitsResponse
        )

    async def freeze(self, request: pb.FreezeRequest, caller: LocalCaller) -> pb.FreezeResponse:
        return await self._methods.answer(f"/{ADMIN}/Freeze", request, caller, pb.FreezeResponse)

    def verify(
        self, request: pb.VerifyRequest, caller: LocalCaller
    ) -> AsyncGenerator[pb.VerifyResponse, None]:
        """Ends where the generator is closed."""
        return self._methods.answers(f"/{ADMIN}/Verify", request, caller)

    def copy_closed(
        self, request: pb.CopyClosedRequest, caller: LocalCaller
    ) -> AsyncGenerator[pb.CopyClosedResponse, None]:
        """Ends where the generator is closed."""
        return self._methods.answers(f"/{ADMIN}/CopyClosed", request, caller)
