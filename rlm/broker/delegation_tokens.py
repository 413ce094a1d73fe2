"""Delegation tokens of Kafka (KIP-48) for other principals than the service's own (KIP-373).

Whoever has a token is its owner to every broker, until it ends. So its HMAC is a Secret here, and
no text of this module has one. This module must not know for whom tokens are.
"""

import base64
import enum
from dataclasses import dataclass

from kafka_clients.channel_security import ChannelSecurity
from kafka_protocol.apis import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
)
from kafka_protocol.schema import Value
from kip405.acls import grants, user_acl
from kip405.addresses import Address
from kip405.errors import RemoteStorageError, Unavailable
from kip405.settings import Secret
from rlm.broker.connection import BrokerConnection
from rlm.broker.versions import newest_versions

_WITH_OWNER = 3
_EXPIRE_VERSION = 2
_AT_ONCE = -1
_PRINCIPAL_TYPE = "User"
_AUTH_DISABLED, _NOT_FOUND, _NOT_ALLOWED, _NOT_AUTHORIZED, _EXPIRED = 61, 62, 64, 65, 66
_NO_USER = 67
_NOBODY = {"principal_type": "Nobody", "principal_name": ""}
"""A renewer that is no user, which brokers refuse after all else that they check."""
_TIMEOUT_MS = 5_000


class Why(enum.Enum):
    """Why there is no token, as a word for logs and metrics."""

    DISABLED = "tokens_disabled"
    NO_RIGHT = "token_right_missing"
    NOT_ALLOWED = "token_request_not_allowed"
    UNAVAILABLE = "tokens_unavailable"


class NoToken(Exception):
    """There is none; the message says what to do."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(message)
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """`hmac`: in base64, as SCRAM has it for a password. `lifetime_ms`: from its creation on."""

    owner: str
    token_id: str
    hmac: Secret
    lifetime_ms: int


class DelegationTokens:
    """Makes and ends tokens over a connection of its own; the owner closes it."""

    def __init__(self, address: Address, *, client_id: str, security: ChannelSecurity) -> None:
        self._connection = BrokerConnection(
            address, client_id=f"{client_id}-tokens", security=security
        )
        self._requester: Value | None = None

    async def create(self, owner: str, *, max_lifetime_ms: int) -> DelegationToken:
        """A new token of User:`owner`. NoToken."""
        try:
            answer = await self._renewed_by_us(owner, max_lifetime_ms)
        except RemoteStorageError as error:
            raise NoToken(Why.UNAVAILABLE, str(error)) from error
        if answer["error_code"]:
            raise _refused(answer, owner)
        return DelegationToken(
            owner=owner,
            token_id=answer["token_id"],
            hmac=Secret(base64.b64encode(bytes(answer["hmac"])).decode()),
            lifetime_ms=answer["expiry_timestamp_ms"] - answer["issue_timestamp_ms"],
        )

    async def is_known(self, token: DelegationToken) -> bool:
        """Whether this broker has read of it: a token comes to brokers with the metadata.
        Unavailable: the broker does not say.
        """
        owner = {"principal_type": _PRINCIPAL_TYPE, "principal_name": token.owner}
        answer = await self._connection.call(
            DESCRIBE_DELEGATION_TOKEN, _WITH_OWNER, {"owners": [owner]}, timeout_ms=_TIMEOUT_MS
        )
        if answer["error_code"]:
            raise Unavailable(f"describe delegation tokens: error {answer['error_code']}")
        return any(one["token_id"] == token.token_id for one in answer["tokens"])

    async def expire(self, token: DelegationToken) -> None:
        """End it now; nothing if it has ended. Unavailable: it may live until its end."""
        answer = await self._connection.call(
            EXPIRE_DELEGATION_TOKEN,
            _EXPIRE_VERSION,
            {
                "hmac": base64.b64decode(token.hmac.reveal()),
                "expiry_time_period_ms": _AT_ONCE,
            },
            timeout_ms=_TIMEOUT_MS,
        )
        if answer["error_code"] not in (0, _NOT_FOUND, _EXPIRED):
            raise Unavailable(f"expire delegation token: error {answer['error_code']}")

    async def close(self) -> None:
        await self._connection.close()

    async def _create(
        self, kind: str | None, owner: str | None, renewer: Value, max_lifetime_ms: int
    ) -> Value:
        body = {
            "owner_principal_type": kind,
            "owner_principal_name": owner,
            "renewers": [renewer],
            "max_lifetime_ms": max_lifetime_ms,
        }
        return await self._connection.call(
            CREATE_DELEGATION_TOKEN, _WITH_OWNER, body, timeout_ms=_TIMEOUT_MS
        )

    async def _renewed_by_us(self, owner: str, max_lifetime_ms: int) -> Value:
        """The answer of who the service is now. A connection that was opened anew may be another
        principal's, by a renewed certificate; a token with the former one as renewer is not ours to
        end or to look for, and nobody uses it.
        """
        renewer = await self._own_principal()
        answer = await self._create(_PRINCIPAL_TYPE, owner, renewer, max_lifetime_ms)
        if _requester(answer) == renewer:
            return answer
        self._requester = None
        renewer = await self._own_principal()
        return await self._create(_PRINCIPAL_TYPE, owner, renewer, max_lifetime_ms)

    async def _own_principal(self) -> Value:
        """Who the service is to the broker. Besides a token's owner only a renewer may end it, and
        nothing but an answer about tokens says who asks: this one is always a refusal.
        """
        if self._requester is None:
            await self._check_version()
            answer = await self._create(None, None, _NOBODY, 1)
            if answer["error_code"] != _NO_USER:
                raise _refused(answer, "")
            self._requester = _requester(answer)
        return self._requester

    async def _check_version(self) -> None:
        """A broker ends the connection at an API that it has not."""
        newest = await newest_versions(self._connection, timeout_ms=_TIMEOUT_MS)
        if newest.get(CREATE_DELEGATION_TOKEN.key, -1) < _WITH_OWNER:
            raise NoToken(
                Why.DISABLED,
                f"the broker at {self._connection.address} makes no delegation tokens for other "
                "principals: Kafka 3.3 with ZooKeeper or 3.6 with KRaft is the first that does",
            )


def _requester(answer: Value) -> Value:
    return {
        "principal_type": answer["token_requester_principal_type"],
        "principal_name": answer["token_requester_principal_name"],
    }


def _refused(answer: Value, owner: str) -> NoToken:
    code = answer["error_code"]
    if code == _AUTH_DISABLED:
        return NoToken(
            Why.DISABLED,
            "the brokers have no delegation.token.secret.key: give all brokers and controllers "
            "the same one, or set proxy.tls.client.identity to sasl",
        )
    if code == _NOT_ALLOWED:
        return NoToken(
            Why.NOT_ALLOWED,
            "the broker makes tokens only for who comes by SASL or with a certificate, and not by "
            "a token: look at kafka.security.protocol",
        )
    if code == _NOT_AUTHORIZED:
        own = _requester(answer)
        principal = f"{own['principal_type']}:{own['principal_name']}"
        acl = user_acl("CreateTokens", f"User:{owner}", principal=principal)
        return NoToken(Why.NO_RIGHT, f"missing ACL: {acl}: kafka-acls.sh {grants([acl])[0]}")
    text = f"the broker makes no delegation token for User:{owner}: Kafka error {code}"
    return NoToken(Why.UNAVAILABLE, text)
