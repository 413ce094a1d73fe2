"""Authenticates the calls of the API.

A call names a principal, and shows a token if tokens are configured. Where the API is authorised,
the principal is that of the token or of the client certificate in the principals file, whatever the
call says, except that services name the principal for whom they call. A token file has one token a
line and is read again when it changes. Every line is accepted, and the first one is the token that
this service sends to its peers. So a token is replaced without refusing a caller: add the new one
as the second line everywhere, then make it the first line everywhere, then remove the old one.
"""

import hmac
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from kip405.errors import Invalid
from rlm.api.call_metadata import BEARER, FORWARDED_KEY, TOKEN_KEY, Tokens, read_tokens
from rlm.api.principals import Principals, PrincipalSource
from rlm.clock import Clock
from rsm_plugins.contract.answering import Answered, Context, principal_of
from rsm_plugins.contract.principals import PRINCIPAL_MAX, can_be_named
from rsm_plugins.contract.status import Unauthenticated
from rsm_plugins.renewed import Renewed

API_TOKENS = "api.token.file"
HTTP_TOKENS = "http.token.file"
_CHECK_MS = 1_000

TokenSource = Callable[[], Tokens]
"""The tokens as they are now; none = none is asked for, and none is shown."""


def no_tokens() -> Tokens:
    """The source of a service without tokens."""
    return ()


class TokenFile:
    """A `TokenSource`; a file that becomes unusable leaves the former tokens in force."""

    def __init__(self, path: Path, clock: Clock, setting: str = API_TOKENS) -> None:
        """Invalid where the file cannot be used now."""
        self._renewed = Renewed((path,), lambda: read_tokens(path, setting))
        self._clock = clock
        self._checked_ms = clock.monotonic_ms()
        self._tokens = self._renewed.current()

    def __call__(self) -> Tokens:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms >= _CHECK_MS:
            self._checked_ms = now_ms
            self._tokens = self._renewed.current()
        return self._tokens


def token_source(path: Path | None, clock: Clock, setting: str = API_TOKENS) -> TokenSource:
    """The source for a setting, if it is given; Invalid if the file cannot be used."""
    return no_tokens if path is None else TokenFile(path, clock, setting)


_SUBJECT_KEY = "x509_subject"
_CERTIFICATE_KEY = "x509_pem_cert"
_V4_WITHIN_V6 = "::ffff:"
"""What a caller by IPv4 has before its address at a socket that listens for both."""
_TOKEN_WANTED = "authorization: Bearer ..."  # noqa: S105 - how a token is shown
_NEITHER = (
    f"the call shows neither a token ({_TOKEN_WANTED}) nor a client certificate, and one of them "
    "is needed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The principal of a call; `forwarded_by` is the service that forwarded the call, or empty.

    `address`: the host from which the call came, empty where that is not known. `is_proven`: the
    caller has shown a token or certificate of this principal. Otherwise it has every right, and the
    name is what it says: it has shown the token of the services, or the API is not authorised.
    """

    principal: str
    forwarded_by: str = ""
    address: str = ""
    is_proven: bool = False

    @property
    def is_forwarded(self) -> bool:
        return bool(self.forwarded_by)


class Gate:
    """Admits calls; with tokens configured, only calls that show one. With `principals`, only calls
    of the services and of known principals.
    """

    def __init__(
        self, tokens: TokenSource = no_tokens, principals: PrincipalSource | None = None
    ) -> None:
        self._tokens = tokens
        self._principals = principals

    def admit(self, context: Context) -> Caller:
        """Unauthenticated without principal or with a wrong token."""
        metadata = {
            key: value
            for key, value in context.invocation_metadata() or ()
            if isinstance(value, str)
        }
        shown = metadata.get(TOKEN_KEY)
        if self._principals is not None:
            known = self._known(self._principals(), shown, context)
            if known is not None:
                return Caller(principal=known, address=address_of(context), is_proven=True)
        else:
            self._check_token(shown)
        return Caller(
            principal=principal_of(context),
            forwarded_by=metadata.get(FORWARDED_KEY, ""),
            address=address_of(context),
        )

    def refuse_token(self, shown: str | None, knows_certificates: bool) -> None:
        """Unauthenticated where `admit` will not let in whoever shows this token, or none, whatever
        else the call has. `knows_certificates`: the certificate may say who it is.
        """
        if self._principals is None:
            self._check_token(shown)
        elif shown is not None:
            self._of_token(self._principals(), shown)
        elif not knows_certificates:
            raise Unauthenticated(_NEITHER)

    def needs_certificate(self, shown: str | None) -> bool:
        """Whether nobody but its certificate says who calls, if `refuse_token` refuses nothing."""
        return self._principals is not None and shown is None

    def _check_token(self, shown: str | None) -> None:
        tokens = self._tokens()
        if tokens and not shows_one(shown, tokens):
            raise Unauthenticated(
                f"the call shows no token, and one is needed ({_TOKEN_WANTED})"
                if shown is None
                else f"the call shows no valid token ({_TOKEN_WANTED})"
            )

    def _known(self, principals: Principals, shown: str | None, context: Context) -> str | None:
        """The proven principal of a call; None: a service is calling. A token counts before a
        certificate: a proxy for many may have the certificate.
        """
        if shown is None:
            return _certified(principals, context)
        return self._of_token(principals, shown)

    def _of_token(self, principals: Principals, shown: str) -> str | None:
        is_bearer = shown.startswith(BEARER)
        principal = principals.of_token(shown.removeprefix(BEARER)) if is_bearer else None
        is_service = shows_one(shown, self._tokens())
        if is_service and principal is not None:
            raise Unauthenticated(
                f"the token is that of {principal} in api.principals.file and that of all services "
                "in api.token.file: take it out of one of them"
            )
        if principal is None and not is_service:
            raise Unauthenticated(f"the call shows no valid token ({_TOKEN_WANTED})")
        return principal


def _certified(principals: Principals, context: Context) -> str:
    subject = _subject_of(context)
    if subject is None:
        raise Unauthenticated(_NEITHER)
    try:
        principal = principals.of_certificate(subject, _certificate_of(context))
    except Invalid as error:
        raise Unauthenticated(f"the certificate of {subject} is nobody's here: {error}") from error
    if principal is None:
        by_rules = " or by ssl.principal.mapping.rules" if principals.mapping else ""
        raise Unauthenticated(
            f"the certificate of {subject} is of no principal in api.principals.file{by_rules}"
        )
    if not can_be_named(principal):
        raise Unauthenticated(
            f"the certificate of {subject} is of a principal whose name is not 1 to "
            f"{PRINCIPAL_MAX} printable ASCII characters, and calls between services can carry no "
            "others: name the certificate in api.principals.file, under another principal"
        )
    return principal


def _subject_of(context: Context) -> str | None:
    """The subject of the verified client certificate, written by RFC 2253, as Kafka does."""
    found = next(iter(context.auth_context().get(_SUBJECT_KEY, ())), None)
    return None if found is None else found.decode(errors="replace")


def _certificate_of(context: Context) -> bytes | None:
    """The verified client certificate in DER."""
    found = next(iter(context.auth_context().get(_CERTIFICATE_KEY, ())), None)
    return None if found is None else ssl.PEM_cert_to_DER_cert(found.decode("ascii"))


def address_of(context: Context) -> str:
    """The host of `ipv4:10.0.0.1:40000` and `ipv6:%5B::1%5D:40000`; `unix` for a socket."""
    kind, _, rest = unquote(context.peer() or "").partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind
    host = rest.rpartition(":")[0].strip("[]")
    return host.removeprefix(_V4_WITHIN_V6)


def shows_one(shown: str | None, tokens: Tokens) -> bool:
    """Whether `authorization` has one of the tokens. Compares with all of them in constant time, so
    that the time reveals nothing.
    """
    text = (shown or "").encode()
    same = [hmac.compare_digest(text, f"{BEARER}{token}".encode()) for token in tokens]
    return any(same)


class Answering(Answered[Caller]):
    """`async with Answering(gate, context, "fetch") as caller:` around the body of a call."""

    def __init__(self, gate: Gate, context: Context, operation: str) -> None:
        super().__init__(context, operation, admit=gate.admit)
