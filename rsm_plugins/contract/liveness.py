"""Whether a gRPC server answers. Commands import this, so it imports nothing of services."""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

NO_ANSWER = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)


def answers(channel: grpc.Channel, seconds: float) -> bool:
    """Whether a server answers on the blocking channel in time, with any answer; connects as often
    as that allows. A future of the channel's state would leave a thread on the channel when closed.
    """
    health: Any = health_pb2_grpc.HealthStub(channel)
    try:
        health.Check(health_pb2.HealthCheckRequest(), timeout=seconds, wait_for_ready=True)
    except grpc.RpcError as error:
        return error.code() not in NO_ANSWER
    return True
