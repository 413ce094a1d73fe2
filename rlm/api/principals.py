"""The principals of the API: who shows which token or certificate, and what each may do.

`api.principals.file` is YAML, by principal:

    User:etl:
      tokens: [<SHA-256 of a token, in hexadecimal>]
      certificates: ["CN=etl,O=example"]
      topics: {orders: [read], "*": [operate]}
      prefixes: {team-a-: [read, admin]}

The file is read again when it changes, off the event loop. A file that cannot be used is refused at
the start; later it is logged, and what was read last stays in force. The file holds no secret: a
token of enough random characters cannot be found by its hash.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_clients.distinguished_names import subject_of
from kafka_clients.principal_mapping import PrincipalMapping
from kip405.errors import Invalid
from kip405.topic_names import checked_name
from rlm.clock import Clock
from rlm.config import read_yaml
from rlm.plans.api_rights import EVERY_TOPIC, GIVEN_BY, Grant, Rights, TopicRights
from rsm_plugins.contract.principals import PRINCIPAL_MAX, can_be_named
from rsm_plugins.renewed import Renewed
from rsm_plugins.threads import Threads

PRINCIPALS_MAX = 1_000
KAFKA_USER = "User:"
SETTING = "api.principals.file"
BY_SUBJECT = PrincipalMapping(None)
"""Kafka's default: the name of a principal is the whole subject."""
_CHECK_MS = 1_000
_HASH_DIGITS = 64
_KEYS = ("tokens", "certificates", "topics", "prefixes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Principals:
    """What a file says. `mapping`: a certificate that the file does not name is of the principal
    that these rules make of its subject; None: it is nobody's.
    """

    by_token: Mapping[str, str] = field(default_factory=dict)
    by_certificate: Mapping[str, str] = field(default_factory=dict)
    rights: Mapping[str, TopicRights] = field(default_factory=dict)
    mapping: PrincipalMapping | None = None

    def of_token(self, token: str) -> str | None:
        """The principal of a token; None = it is nobody's."""
        return self.by_token.get(token_hash(token))

    def of_certificate(self, subject: str, certificate: bytes | None = None) -> str | None:
        """The principal of a verified certificate, by its subject or, for the rules, by the
        certificate itself in DER, whose subject is then written as Java does. None: it is nobody's.
        Invalid: the rules or the certificate cannot be read as brokers read them.
        """
        found = self.by_certificate.get(subject)
        if found is None and self.mapping is not None:
            by_java = subject if certificate is None else subject_of(certificate)
            name = self.mapping.principal(by_java)
            return f"{KAFKA_USER}{name}" if name else None
        return found


PrincipalSource = Callable[[], Principals]
"""The principals as they are now."""


def token_hash(token: str) -> str:
    """How a principals file names a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class PrincipalsFile:
    """A `PrincipalSource` that is kept up to date by `run`. With `has_rights` False the file names
    principals only: the brokers' ACLs say what they may do.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        threads: Threads,
        has_rights: bool,
        mapping: PrincipalMapping | None = None,
    ) -> None:
        """Invalid where the file cannot be used now."""
        self._renewed = Renewed(
            (path,), lambda: read_principals(path, has_rights=has_rights, mapping=mapping)
        )
        self._clock = clock
        self._threads = threads
        self._principals = self._renewed.current()

    def __call__(self) -> Principals:
        return self._principals

    async def run(self) -> None:
        """Check the file every second until cancelled."""
        while True:
            await self._clock.sleep_ms(_CHECK_MS)
            await self.refresh()

    async def refresh(self) -> None:
        """Check the file now."""
        self._principals = await self._threads.run(self._renewed.current)


def read_principals(
    path: Path, *, has_rights: bool = True, mapping: PrincipalMapping | None = None
) -> Principals:
    """The principals of a file. Invalid says what is wrong where."""
    try:
        content = read_yaml(path, like="User:etl: {tokens: [...]}")
    except Invalid as error:
        raise Invalid(f"{SETTING}: {error}") from error
    try:
        return principals_of(content, has_rights=has_rights, mapping=mapping)
    except Invalid as error:
        raise Invalid(f"{SETTING}: {path}: {error}") from error


def principals_of(
    content: Mapping[str, Any],
    *,
    has_rights: bool = True,
    mapping: PrincipalMapping | None = None,
) -> Principals:
    """The principals of a file's content. `mapping`: of a certificate that it does not name, where
    `has_rights` is False. Invalid: one of them is not what it must be.
    """
    if len(content) > PRINCIPALS_MAX:
        raise Invalid(f"it has {len(content)} principals; there may be {PRINCIPALS_MAX}")
    by_token: dict[str, str] = {}
    by_certificate: dict[str, str] = {}
    rights: dict[str, TopicRights] = {}
    for name, entry in content.items():
        _check_entry(name, entry, has_rights=has_rights)
        for kind, known in (("tokens", by_token), ("certificates", by_certificate)):
            for word in _words(name, kind, entry.get(kind)):
                key = _hash(name, word) if kind == "tokens" else word
                if key in known:
                    raise Invalid(f"{name}: {kind}: one of them is of {known[key]} too")
                known[key] = name
        rights[name] = TopicRights(
            names=dict(_granted(name, "topics", entry.get("topics"))),
            prefixes=dict(_granted(name, "prefixes", entry.get("prefixes"))),
        )
    return Principals(
        by_token=by_token,
        by_certificate=by_certificate,
        rights=rights,
        mapping=None if has_rights else mapping or BY_SUBJECT,
    )


def _check_entry(name: str, entry: Any, *, has_rights: bool) -> None:
    if not can_be_named(name):
        raise Invalid(
            f"{name[:PRINCIPAL_MAX]!r} is no principal: a name has 1 to {PRINCIPAL_MAX} printable "
            "ASCII characters, because calls between services can carry no others; give it another "
            "name"
        )
    if not isinstance(entry, dict):
        raise Invalid(f"{name}: must have tokens or certificates, and topics or prefixes")
    for key in entry:
        if key not in _KEYS:
            raise Invalid(f"{name}: {key}: unknown; there are {', '.join(_KEYS)}")
    if not entry.get("tokens") and not entry.get("certificates"):
        raise Invalid(f"{name}: has neither tokens nor certificates: nobody could be it")
    if not has_rights and (entry.get("topics") or entry.get("prefixes")):
        raise Invalid(
            f"{name}: has topics or prefixes, but api.authorization is kafka: there the brokers' "
            "ACLs say what it may do"
        )


def _words(name: str, key: str, value: Any) -> Iterator[str]:
    """The texts of a list that may be missing."""
    if value is None:
        return
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise Invalid(f"{name}: {key}: must be a list of texts, in quotes where YAML needs them")
    yield from value


def _hash(name: str, word: str) -> str:
    text = word.lower()
    if len(text) != _HASH_DIGITS or not all(one in "0123456789abcdef" for one in text):
        raise Invalid(
            f"{name}: tokens: must be SHA-256 hashes of tokens, {_HASH_DIGITS} hexadecimal digits, "
            "never tokens themselves (printf %s TOKEN | sha256sum)"
        )
    if text == token_hash(""):
        raise Invalid(f"{name}: tokens: one is the hash of no token, as of an empty file")
    return text


def _granted(name: str, key: str, value: Any) -> Iterator[tuple[str, Rights]]:
    if value is None:
        return
    if not isinstance(value, dict):
        raise Invalid(f"{name}: {key}: must be rights by name, as in {{orders: [read]}}")
    for topic, words in value.items():
        text = _topic(name, key, topic)
        rights: Rights = frozenset()
        for word in _words(name, f"{key}: {text}", words):
            rights |= _given(name, word)
        if not rights:
            raise Invalid(f"{name}: {key}: {text}: has no rights; there are {_grants()}")
        yield text, rights


def _topic(name: str, key: str, topic: Any) -> str:
    if not isinstance(topic, str):
        raise Invalid(f"{name}: {key}: {topic!r} is no text: put it in quotes")
    if key == "topics" and topic == EVERY_TOPIC:
        return topic
    try:
        return checked_name(topic)
    except Invalid as error:
        raise Invalid(f"{name}: {key}: {error}") from error


def _given(name: str, word: str) -> Rights:
    try:
        return GIVEN_BY[Grant(word)]
    except ValueError as error:
        raise Invalid(f"{name}: {word!r} is no right; there are {_grants()}") from error


def _grants() -> str:
    return ", ".join(one.value for one in Grant)
