"""Decides who may read the console's data by HTTP, and who may act. Pure but for the tokens.

Data of the console is data of the API, so what the API asks for is asked for here: its token. Where
the API asks for none, the token of HTTP is. Where there is neither, two more ways in are shut: an
API that admits by client certificates or by the rights of a socket's file has no equal here, and
nobody is admitted; and a request that names another host than a loopback address may be of a web
page elsewhere whose name leads here (DNS rebinding), which `allow_insecure` (rlm.config.rules)
allows.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from kip405.addresses import Address
from kip405.errors import Invalid
from rlm.api.calls import Gate, TokenSource, shows_one
from rsm_plugins.contract.status import PermissionDenied, Unauthenticated


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAccess:
    """`api_asks`: callers of the API show a token. `http_tokens`: those of http.token.file.
    `api_is_closed`: the API admits by client certificates, or by a socket's file. `allows_all`: of
    allow_insecure.
    """

    gate: Gate
    api_asks: bool
    http_tokens: TokenSource
    api_is_closed: bool
    allows_all: bool

    def check(self, shown: str | None, host: str, site: str | None = None) -> None:
        """`shown`: the header Authorization; `host`: the header Host; `site`: Sec-Fetch-Site, with
        which a browser says where the page that asks is from. Unauthenticated: the token is missing
        or wrong. PermissionDenied: nobody may read here, or not from there.
        """
        if site not in (None, "same-origin", "none"):
            raise PermissionDenied("a page of another origin cannot ask the console")
        if self.api_asks:
            self.gate.refuse_token(shown, knows_certificates=False)
        elif tokens := self.http_tokens():
            if not shows_one(shown, tokens):
                raise Unauthenticated("show the token of http.token.file (Authorization: Bearer)")
        elif self.api_is_closed:
            raise PermissionDenied(
                "the API asks for client certificates or has a unix socket, which nobody can show "
                "here: give http.token.file or api.token.file"
            )
        elif not self.allows_all and not _is_local(host):
            raise PermissionDenied(
                "without a token the console answers under a loopback address or localhost only"
            )

    def check_action(
        self, shown: str | None, host: str, site: str | None, origin: str | None
    ) -> None:
        """As `check`, of what changes something; `origin`: the header Origin, which browsers always
        send then. It takes what the API takes, so no token of HTTP in place of a certificate, and
        without a token no other name than a loopback address, whatever `allow_insecure` says: a
        page elsewhere whose name leads here would be of the same origin.
        """
        if site not in (None, "same-origin") or not _is_of(origin, host):
            raise PermissionDenied("a page of another origin cannot do anything here")
        if self.api_is_closed and not self.api_asks:
            raise PermissionDenied(
                "the API asks for client certificates or has a unix socket, which nobody can show "
                "here: use the command"
            )
        self.check(shown, host, site)
        if not self.asks_token and not _is_local(host):
            raise PermissionDenied(
                "without a token the console does nothing but under a loopback address or localhost"
            )

    @property
    def asks_token(self) -> bool:
        """Whether a reader has to show one."""
        return self.api_asks or bool(self.http_tokens())


def _is_of(origin: str | None, host: str) -> bool:
    """Whether a page of this origin came from the host that the request names."""
    try:
        found = urlsplit(origin or "")
    except ValueError:
        return False
    is_page = found.scheme in ("http", "https")
    return is_page and found.netloc.lower() == host.lower()


def _is_local(host: str) -> bool:
    """Whether the header Host names this machine by an address that no name service decides."""
    try:
        return Address.parse_listening(host if _has_port(host) else f"{host}:80").is_private
    except Invalid:
        return False


def _has_port(host: str) -> bool:
    return host.rpartition("]")[2].rpartition(":")[2].isdigit() and ":" in host.rpartition("]")[2]
