"""Selects the service that a command calls, and how: address, TLS, principal, token, deadline.

Errors become kip405's. The calls are blocking gRPC: a command does one thing at a time, and Ctrl-C
ends it.
"""

import getpass
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import grpc

from kip405.addresses import Address
from kip405.errors import Busy, Invalid, RemoteStorageError, Unavailable
from rlm.api.call_metadata import call_metadata, read_tokens
from rlm.cli.live import pause
from rlm.clock import SystemClock
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rsm_plugins.contract.liveness import answers
from rsm_plugins.contract.status import error_of_call
from rsm_plugins.contract.tls import Tls, require_both

F = TypeVar("F", bound=Callable[..., Any])
Q = TypeVar("Q")
A = TypeVar("A")
_OPTIONS = (("grpc.max_receive_message_length", 128 << 20),)
_TRIES_SECONDS = (1.5, 5.0)
"""How long each of several services may take; on a busy machine some need the second time."""
_GRPC_SAYS = ("", "Method not found!", "Method not implemented!")
_BUSY_PAUSE_SECONDS = 0.2
_BUSY_PAUSE_MOST_SECONDS = 2.0


@dataclass(kw_only=True)
class Target:
    """Stubs of one service, and the metadata of each call."""

    address: str
    channel: grpc.Channel
    metadata: tuple[tuple[str, str], ...]
    timeout_s: float
    admin: AdminServiceStub = field(init=False)
    fetch: FetchServiceStub = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminServiceStub(self.channel)
        self.fetch = FetchServiceStub(self.channel)

    def ask(self, call: "grpc.UnaryUnaryMultiCallable[Q, A]", request: Q) -> A:
        """The answer to a call of `admin` or `fetch`, within the deadline."""
        return call(request, metadata=self.metadata, timeout=self.timeout_s)

    def ask_until_free(self, call: "grpc.UnaryUnaryMultiCallable[Q, A]", request: Q) -> A:
        """As `ask`; a service that is busy is asked again within the deadline."""
        clock, pause_s = SystemClock(), _BUSY_PAUSE_SECONDS
        until_ms = clock.monotonic_ms() + self.timeout_s * 1_000
        while True:
            try:
                return self.ask(call, request)
            except grpc.RpcError as failed:
                error = error_of_call(failed, f"service at {self.address}")
                if not isinstance(error, Busy) or clock.monotonic_ms() >= until_ms:
                    raise
            pause(pause_s)
            pause_s = min(2 * pause_s, _BUSY_PAUSE_MOST_SECONDS)

    @contextmanager
    def stream(
        self,
        call: "grpc.UnaryStreamMultiCallable[Q, A]",
        request: Q,
        *,
        timeout_s: float | None = None,
    ) -> Iterator[Iterator[A]]:
        """The answers of a call as they come; whoever leaves early cancels it. `timeout_s` None =
        it may take hours.
        """
        answers_of_call = call(request, metadata=self.metadata, timeout=timeout_s)
        try:
            yield answers_of_call
        finally:
            answers_of_call.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """The options that select a service; `open` connects to it."""

    address: str | None
    principal: str | None
    token_file: Path | None
    timeout_s: float
    as_json: bool
    tls: Tls | None = None

    @contextmanager
    def open(self, address: str = "", *, timeout_s: float | None = None) -> Iterator[Target]:
        """A service to ask; `address` overrides. Unavailable if none answers."""
        chosen = address or self.chosen_address()
        metadata = self.metadata()
        with self._channel(chosen) as channel:
            try:
                yield Target(
                    address=chosen,
                    channel=channel,
                    metadata=metadata,
                    timeout_s=timeout_s or self.timeout_s,
                )
            except grpc.RpcError as error:
                raise error_of_answer(error, chosen) from error

    def chosen_address(self) -> str:
        """The address of a service that answers. Unavailable if none does."""
        addresses = self._addresses()
        if len(addresses) == 1:
            return addresses[0]  # a single token is used without a choice
        for limit_s in _TRIES_SECONDS:
            for address in addresses:
                with self._channel(address) as channel:
                    if answers(channel, min(limit_s, self.timeout_s)):
                        return address
        raise Unavailable(f"no service is reachable at {', '.join(addresses)}")

    def _channel(self, address: str) -> grpc.Channel:
        if self.tls is None:
            return grpc.insecure_channel(address, options=_OPTIONS)
        return grpc.secure_channel(
            address, self.tls.credentials(), options=(*_OPTIONS, *self.tls.options)
        )

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of each call."""
        return call_metadata(self.principal or _user(), _token(self.token_file))

    def _addresses(self) -> list[str]:
        if self.address:
            return [_checked(self.address)]
        sandbox = os.environ.get("RLM_SANDBOX")
        if sandbox:
            return _sandbox_addresses(Path(sandbox))
        raise Invalid(
            "which service? give --address HOST:PORT, or set RLM_ADDRESS, or RLM_SANDBOX=DIR"
        )


_TLS_OPTIONS = (
    click.option(
        "--tls-server-name",
        envvar="RLM_TLS_SERVER_NAME",
        help="Name in the service's certificate (or RLM_TLS_SERVER_NAME; default: its host).",
    ),
    click.option(
        "--tls-key",
        envvar="RLM_TLS_KEY",
        type=click.Path(path_type=Path),
        help="PEM file with the key of --tls-cert (or RLM_TLS_KEY).",
    ),
    click.option(
        "--tls-cert",
        envvar="RLM_TLS_CERT",
        type=click.Path(path_type=Path),
        help="PEM file with the certificate to show (or RLM_TLS_CERT).",
    ),
    click.option(
        "--tls-ca",
        envvar="RLM_TLS_CA",
        type=click.Path(path_type=Path),
        help="Speak TLS; PEM file with the service's authorities (or RLM_TLS_CA).",
    ),
)


def is_unknown_call(error: grpc.RpcError) -> bool:
    """Whether the service does not have the method that was called."""
    return cast(grpc.Call, error).code() is grpc.StatusCode.UNIMPLEMENTED


def error_of_answer(error: grpc.RpcError, address: str) -> RemoteStorageError:
    """The error of a failed call to the service at `address`."""
    if is_unknown_call(error):
        return Invalid(f"service at {address}: {_why_unknown(error)}")
    return error_of_call(error, f"service at {address}")


def _why_unknown(error: grpc.RpcError) -> str:
    """What the service says of it, or why gRPC says that there is no such method."""
    details = cast(grpc.Call, error).details() or ""
    if details not in _GRPC_SAYS:
        return details
    return (
        "it does not have this call: it is a reader, which has those that read the remote tier "
        "alone, or of an older version, or a store's plugin"
    )


def service_options(command: F) -> F:
    """Adds the options of `Connect`; the command gets it as `connect`."""

    def pack(ctx: click.Context) -> None:
        names = ("address", "principal", "token_file", "timeout_s", "as_json")
        chosen = {name: ctx.params.pop(name) for name in names}
        ctx.params["connect"] = Connect(**chosen, tls=_tls(ctx.params))

    return _options(_packed(command, pack))


def _tls(params: dict[str, Any]) -> Tls | None:
    """TLS is spoken where any of its options is given."""
    ca, cert, key, name = (
        params.pop(f"tls_{what}") for what in ("ca", "cert", "key", "server_name")
    )
    if not (ca or cert or key or name):
        return None
    require_both("--tls-cert", cert, "--tls-key", key)
    return Tls(ca_file=ca, cert_file=cert, key_file=key, server_name=name or "")


def _packed(command: F, pack: Callable[[click.Context], None]) -> F:
    def run(**params: Any) -> Any:
        ctx = click.get_current_context()
        ctx.params = params
        pack(ctx)
        return command(**ctx.params)

    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    return run  # type: ignore[return-value]  # the same command with packed parameters


def _options(command: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=0.1),
            default=30.0,
            show_default=True,
            help="Seconds to wait for an answer.",
        ),
        click.option(
            "--token-file",
            envvar="RLM_TOKEN_FILE",
            type=click.Path(path_type=Path),
            help="File with the API token (or RLM_TOKEN_FILE).",
        ),
        *_TLS_OPTIONS,
        click.option(
            "--principal",
            envvar="RLM_PRINCIPAL",
            help="Principal of the calls (or RLM_PRINCIPAL; default: the user).",
        ),
        click.option(
            "--address",
            envvar="RLM_ADDRESS",
            metavar="HOST:PORT",
            help="gRPC address of any service (or RLM_ADDRESS, or RLM_SANDBOX=DIR).",
        ),
    ):
        command = option(command)
    return command


def _checked(address: str) -> str:
    try:
        return str(Address.parse(address))
    except Invalid as error:
        raise Invalid(f"--address: must be HOST:PORT or unix:/path, got {error}") from error


def _sandbox_addresses(root: Path) -> list[str]:
    path = root / "sandbox.json"
    try:
        brokers = json.loads(path.read_text(encoding="utf-8"))["brokers"]
        addresses = [str(broker["grpc"]) for broker in brokers]
    except OSError as error:
        raise Invalid(f"RLM_SANDBOX: there is no sandbox in {root} ({path.name})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(f"RLM_SANDBOX: {path} is no sandbox's document") from error
    if not addresses:
        raise Invalid(f"RLM_SANDBOX: {path} names no broker")
    return addresses


def _token(path: Path | None) -> str | None:
    return None if path is None else read_tokens(path, "--token-file")[0]


def _user() -> str:
    try:
        return f"cli-{getpass.getuser()}"
    except (OSError, KeyError):
        return "cli"
