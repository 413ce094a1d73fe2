"""Why a broker and a client refuse each other, in one line that names the setting to look at. Pure.

Only what no waiting mends is a refusal: a certificate, a name, a password, a protocol that do not
fit. Everything else stays the error of the network that it is. No text has a secret.
"""

import ssl
from collections.abc import Iterator, Sequence

from kafka_clients.security import (
    CLIENT_ID_KEY,
    CLIENT_SECRET_KEY,
    HOST_NAME_KEY,
    KEYSTORE_KEY,
    MECHANISM_KEY,
    PASSWORD_KEY,
    PROTOCOL_KEY,
    TOKEN_MECHANISM_KEY,
    TOKEN_URL_KEY,
    TRUSTSTORE_KEY,
    USERNAME_KEY,
    DelegationLogin,
    KafkaSecurity,
    PasswordLogin,
    TokenEndpoint,
)
from kafka_protocol.error_codes import (
    ILLEGAL_SASL_STATE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
)
from kip405.errors import Unavailable

_MOST_WORDS = 200
# X509_V_ERR_* of OpenSSL's x509_vfy.h, as `verify_code` has them.
_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_NAME = (62, 64)
_SPEAKS_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE")


class SecurityRefused(Unavailable, ConnectionError):
    """Broker and client do not accept each other. It is retriable, as somebody may repair either
    side, and an OSError, as callers of aiokafka expect of a connection that cannot be opened.
    """


class NotAuthenticated(SecurityRefused):
    """The broker knows the mechanism, and does not take the name or what should prove it."""


class NoTokenNow(SecurityRefused):
    """The token endpoint does not answer, which may pass by itself."""


def closed_at_once(security: KafkaSecurity) -> str:
    """What a connection that the broker ends at the first request may mean."""
    if security.has_tls:
        return (
            "it closed the connection in the TLS handshake or right after: the listener may not "
            f"speak TLS ({PROTOCOL_KEY} is {security.protocol}), or want another certificate "
            f"({KEYSTORE_KEY})"
        )
    return (
        "it closed the connection at once: the listener may want TLS or SASL "
        f"({PROTOCOL_KEY} is {security.protocol})"
    )


def speaks_tls(security: KafkaSecurity) -> str:
    """The answer to a client without TLS began as one of TLS."""
    return f"the listener speaks TLS, and {PROTOCOL_KEY} is {security.protocol}"


def tls_refusal(error: BaseException, security: KafkaSecurity) -> str | None:
    """What a failed handshake, or an alert after it, says; None: it is nothing of TLS."""
    for one in _chain(error):
        if isinstance(one, ssl.SSLCertVerificationError):
            return _of_certificate(one, security)
        if isinstance(one, ssl.SSLError) and not isinstance(one, ssl.SSLEOFError):
            return _of_alert(one.reason or "", security)
    return None


def is_closed_connection(error: BaseException) -> bool:
    """Whether the other side has closed the connection, or cut it."""
    closed = (EOFError, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)
    return any(isinstance(one, closed) for one in _chain(error))


def handshake_refusal(code: int, mechanisms: Sequence[str], security: KafkaSecurity) -> str | None:
    """What SaslHandshake's answer says; None: go on."""
    login = security.login
    if login is None or not code:
        return None
    if code == UNSUPPORTED_SASL_MECHANISM:
        there = ", ".join(sorted(mechanisms)) or "none"
        key = TOKEN_MECHANISM_KEY if isinstance(login, DelegationLogin) else MECHANISM_KEY
        return (
            f"{key} is {login.mechanism}, and the listener has {there[:_MOST_WORDS]} "
            "(sasl.enabled.mechanisms of the broker)"
        )
    if code == ILLEGAL_SASL_STATE and isinstance(login, DelegationLogin):
        return "the tiered listener has no SASL, and a delegation token is nothing but that"
    if code == ILLEGAL_SASL_STATE:
        return f"the listener has no SASL, and {PROTOCOL_KEY} is {security.protocol}"
    return f"it refuses to begin SASL with error {code}"


def authentication_refusal(code: int, message: str | None, security: KafkaSecurity) -> str:
    """What an error of SaslAuthenticate says; `message` is the broker's, without secrets."""
    what = "authentication failed" if code == SASL_AUTHENTICATION_FAILED else f"SASL error {code}"
    said = f": {message[:_MOST_WORDS]}" if message else ""
    return f"{what}{said}; look at {_settings_of(security)}"


def exchange_refusal(error: Exception, security: KafkaSecurity) -> str:
    """The SASL exchange itself went wrong."""
    return f"{error}; look at {MECHANISM_KEY} and {_settings_of(security)}"


def token_refusal(where: str, why: str) -> str:
    """No token is to be had: of an endpoint or of a file, `where`."""
    return f"no token from {where}: {why}; look at {TOKEN_URL_KEY}"


def _settings_of(security: KafkaSecurity) -> str:
    """The settings that say who the client is."""
    login = security.login
    if isinstance(login, DelegationLogin):
        return "the delegation token of the client"
    if isinstance(login, PasswordLogin):
        return f"{USERNAME_KEY} ({login.username}) and {PASSWORD_KEY}"
    if isinstance(login, TokenEndpoint):
        return f"{TOKEN_URL_KEY}, {CLIENT_ID_KEY} and {CLIENT_SECRET_KEY}"
    return TOKEN_URL_KEY


def _of_certificate(error: ssl.SSLCertVerificationError, security: KafkaSecurity) -> str:
    if error.verify_code == _EXPIRED:
        return "a certificate of the broker, or its authority's, has expired: renew it there"
    if error.verify_code == _NOT_YET_VALID:
        return "a certificate of the broker is not valid yet: look at the clocks"
    if error.verify_code in _OTHER_NAME:
        return (
            "the broker's certificate does not have the host that was dialled: use a name of the "
            "certificate in kafka.bootstrap.servers and advertised.listeners, or make "
            f"{HOST_NAME_KEY} empty"
        )
    trusted = security.tls.ca_file or "the system's authorities"
    return (
        f"the broker's certificate is of no authority that is trusted ({error.verify_message}); "
        f"look at {TRUSTSTORE_KEY} ({trusted})"
    )


def _of_alert(reason: str, security: KafkaSecurity) -> str:
    if any(word in reason for word in _SPEAKS_NO_TLS):
        return f"the listener does not speak TLS, and {PROTOCOL_KEY} is {security.protocol}"
    words = reason.lower().replace("_", " ") or "TLS failed"
    if security.tls.cert_file is None and security.tls.cert_text is None:
        if any(word in reason for word in _WANTS_CERTIFICATE):
            return f"it wants a client's certificate ({words}): give {KEYSTORE_KEY}"
    elif "ALERT" in reason:
        return f"it does not accept the client's certificate ({words}); look at {KEYSTORE_KEY}"
    return f"TLS failed: {words}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes."""
    found: BaseException | None = error
    for _ in range(10):
        if found is None:
            return
        yield found
        found = found.__cause__ or found.__context__
