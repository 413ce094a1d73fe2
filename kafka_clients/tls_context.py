"""Makes TLS contexts of PEM files and texts, anew for each connection.

So a renewed certificate is used by the next connection, and no process has to watch files.
"""

import ssl
import tempfile
from pathlib import Path

from kafka_clients.security import (
    KEY_PASSWORD_KEY,
    KEYSTORE_KEY,
    TRUSTSTORE_KEY,
    SecretSource,
    TlsFiles,
)
from kip405.errors import Invalid
from kip405.settings import Secret

_MOST_SECRET_BYTES = 64 << 10
_MOST_KEY_BYTES = 64 << 10
_LOCKED = f"the password of the key is wrong or missing ({KEY_PASSWORD_KEY})"


def read_secret(source: SecretSource, setting: str) -> str:
    """The secret as it is now; of a file without the line end. Invalid names setting and file."""
    if isinstance(source, Secret):
        return source.reveal()
    try:
        with source.open("rb") as file:
            text = file.read(_MOST_SECRET_BYTES).decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise Invalid(f"{setting}: cannot read {source}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Invalid(f"{setting}: {source} is not UTF-8") from None
    if not text:
        raise Invalid(f"{setting}: {source} is empty")
    return text


def make_tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Invalid names the file that cannot be used."""
    context = _trusting(files)
    context.check_hostname = files.checks_host_name
    # Python 3.13 refuses authorities without a key identifier; Java's and librdkafka's clients,
    # which the same files serve, take them, as Python 3.12 does.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if files.cert_text is not None or files.key_text is not None:
        _load_texts(context, files)
    elif files.cert_file is not None:
        _load_chain(context, files.cert_file, files.key_file, files)
    return context


def _trusting(files: TlsFiles) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=files.ca_file, cadata=files.ca_text)
    except (OSError, ValueError) as error:
        where = files.ca_file or "the text that is given"
        raise Invalid(f"{TRUSTSTORE_KEY}: {where} cannot be used: {_why(error)}") from None


def _load_chain(
    context: ssl.SSLContext, cert_file: str, key_file: str | None, files: TlsFiles
) -> None:
    # Without a password OpenSSL would ask for one on the terminal.
    source = files.key_password
    password = read_secret(source, f"{KEY_PASSWORD_KEY}.file") if source is not None else ""
    try:
        context.load_cert_chain(cert_file, key_file, password)
    except (OSError, ValueError) as error:
        where = " and ".join(filter(None, (files.cert_file or "the text that is given", key_file)))
        why = _LOCKED if _is_encrypted(key_file or cert_file) else _why(error)
        raise Invalid(
            f"{KEYSTORE_KEY}: {where} cannot be used as certificate and key: {why}"
        ) from None


def _is_encrypted(key_file: str) -> bool:
    """OpenSSL does not say that a password is wrong."""
    try:
        with Path(key_file).open("rb") as file:
            return b"ENCRYPTED" in file.read(_MOST_KEY_BYTES)
    except OSError:
        return False


def _load_texts(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Loads a certificate chain. OpenSSL reads chains from files only, so it is written to a
    private file for a moment.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
        key = files.key_text.reveal() if files.key_text is not None else ""
        file.write(f"{key}\n{files.cert_text or ''}\n")
        file.flush()
        _load_chain(context, file.name, None, files)


def _why(error: Exception) -> str:
    """OpenSSL's words, or the system's."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not PEM").lower().replace("_", " ")
    return error.strerror or "it cannot be read" if isinstance(error, OSError) else str(error)
