"""Tokens of OAUTHBEARER: JSON web tokens signed with RSA, and the key set that brokers verify them
by.

There is no token server: a token is a file, and tests sign further ones, with other lifetimes, from
the key's file.
"""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from rlm_sandbox.files import write_atomically
from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.listeners import AUDIENCE, ISSUER
from rlm_sandbox.security.principals import CLIENTS

_KEY_ID = "sandbox"
_KEY_BITS = 2048
_EXPONENT = 65537
_LIFETIME_MS = 3650 * 86_400_000


def make_tokens(files: SecurityFiles, *, now_ms: int) -> None:
    """Write the keys, and a token for each client, where there are none."""
    if not files.jwks.exists():
        made = rsa.generate_private_key(public_exponent=_EXPONENT, key_size=_KEY_BITS)
        text = made.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode("ascii")
        write_atomically(files.oauth_key, text, private=True)
        write_atomically(files.jwks, json.dumps(_key_set(made.public_key()), indent=1) + "\n")
    for name in CLIENTS:
        if not files.token(name).exists():
            token = signed_token(files, name, now_ms=now_ms, lifetime_ms=_LIFETIME_MS)
            write_atomically(files.token(name), token, private=True)


def signed_token(files: SecurityFiles, name: str, *, now_ms: int, lifetime_ms: int) -> str:
    """A token for a principal; a negative lifetime is one that has expired."""
    key = serialization.load_pem_private_key(files.oauth_key.read_bytes(), None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise TypeError(f"{files.oauth_key} has no RSA key")
    issued_s = (now_ms + min(0, 2 * lifetime_ms)) // 1000
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": name,
        "iat": issued_s,
        "exp": (now_ms + lifetime_ms) // 1000,
    }
    head = _part({"alg": "RS256", "kid": _KEY_ID, "typ": "JWT"})
    signed = f"{head}.{_part(claims)}"
    signature = key.sign(signed.encode("ascii"), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{_base64url(signature)}"


def _key_set(key: rsa.RSAPublicKey) -> dict[str, Any]:
    numbers = key.public_numbers()
    return {
        "keys": [
            {
                "kty": "RSA",
                "use": "sig",
                "alg": "RS256",
                "kid": _KEY_ID,
                "n": _base64url(numbers.n.to_bytes(_KEY_BITS // 8, "big")),
                "e": _base64url(numbers.e.to_bytes(3, "big")),
            }
        ]
    }


def _part(content: dict[str, Any]) -> str:
    return _base64url(json.dumps(content, separators=(",", ":")).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
