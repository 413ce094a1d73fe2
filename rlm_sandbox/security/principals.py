"""The principals of a secured sandbox, and the secrets that they are known by.

`secrets.json` has every password; only the owner can read it. It is made once, so that a sandbox
that comes up again knows the same clients. Passwords are hexadecimal, so that no file format that
they are written to has to quote them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rlm.clock import new_uuid
from rlm_sandbox.files import write_atomically
from rlm_sandbox.spec import SandboxError

BROKER = "broker"
ADMIN = "admin"
SERVICE = "rlm"
READER = "reader"
DENIED = "denied"
PRINCIPALS = (BROKER, ADMIN, SERVICE, READER, DENIED)
SUPER_USERS = (BROKER, ADMIN)
CLIENTS = (ADMIN, SERVICE, READER, DENIED)
"""Those that sandbox.json names: nobody but a broker should be taken for one."""

SUBJECT_ORGANISATION = "kafka-rlm sandbox"
PRINCIPAL_MAPPING_RULES = "RULE:^CN=([a-zA-Z0-9._-]+),.*$/$1/,DEFAULT"
"""`CN=reader,O=kafka-rlm sandbox`, as Kafka writes a subject, is User:reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Passwords by principal, and the key by which brokers sign delegation tokens."""

    passwords: Mapping[str, str]
    delegation_token_key: str

    def __repr__(self) -> str:
        return "Secrets(...)"

    @classmethod
    def make(cls) -> Self:
        return cls(
            passwords={name: new_uuid().raw.hex() for name in PRINCIPALS},
            delegation_token_key=new_uuid().raw.hex() + new_uuid().raw.hex(),
        )


def saved_secrets(path: Path) -> Secrets:
    """The secrets of a sandbox that has some; raises SandboxError where they cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Secrets(
            passwords={name: str(content["passwords"][name]) for name in PRINCIPALS},
            delegation_token_key=str(content["delegation_token_key"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SandboxError(
            f"{path} cannot be read ({type(error).__name__}): take the sandbox down with --delete"
        ) from error


def make_secrets(path: Path) -> None:
    """Write new secrets where there are none."""
    if path.exists():
        return
    made = Secrets.make()
    content = {
        "passwords": dict(made.passwords),
        "delegation_token_key": made.delegation_token_key,
    }
    write_atomically(path, json.dumps(content, indent=1) + "\n", private=True)
