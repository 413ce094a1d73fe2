"""Translates errors of HDFS and of its client library, with what the operator can do.

The library raises FileNotFoundError and FileExistsError, OSError for broken connections, and for
everything else RuntimeError with the text of its own error: `RPCError("<Java class>", "<message and
stack>")`. A panic inside it appears as pyo3's PanicException, which is no Exception. Almost
everything is Unavailable: wait, repair HDFS, and the same call succeeds.
"""

import re
from dataclasses import dataclass

from kip405.errors import Corrupt, Invalid, RemoteStorageError, Unavailable

_RPC = re.compile(r'^(?:Fatal)?RPCError\("(?P<name>[\w.$]+)", "(?P<message>.*)"\)$', re.DOTALL)
_VARIANT = re.compile(r"^(?P<name>[A-Z]\w+)\b")
_MESSAGE_MAX = 300
_QUOTA = "free space below the folder or raise its quota"
_RIGHTS = "give the plugin's user the right to read and write below the root"
_LOGIN = "look at the Kerberos settings and at what they name"
_HINTS = {
    "SafeModeException": "the name node is in safe mode: it takes no writes until it leaves it",
    "StandbyException": "no name node is active",
    "DSQuotaExceededException": _QUOTA,
    "NSQuotaExceededException": _QUOTA,
    "QuotaExceededException": _QUOTA,
    "QuotaByStorageTypeExceededException": _QUOTA,
    "AccessControlException": _RIGHTS,
    "AuthorizationException": _RIGHTS,
    "NotReplicatedYetException": "its DataNodes have not reported the block before in time",
    "LeaseExpiredException": "the file was removed while it was being written",
    "SASLError": _LOGIN,
    "GSSAPIError": _LOGIN,
    "NoSASLMechanism": _LOGIN,
    "SaslException": _LOGIN,
}
_INVALID = frozenset(
    {
        "InvalidPathException",
        "IllegalArgumentException",
        "PathComponentTooLongException",
        "MaxDirectoryItemsExceededException",
        "UnresolvedPathException",
        "HadoopIllegalArgumentException",
        "InvalidPath",
        "InvalidArgument",
        "UrlParseError",
        "UnsupportedFeature",
        "UnsupportedErasureCodingPolicy",
    }
)
_PASSING = frozenset({"StandbyException", "RetriableException", "ObserverRetryOnActiveException"})
NOT_EMPTY = "PathIsNotEmptyDirectoryException"
NOT_REPLICATED = "NotReplicatedYetException"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The library's cause: the short name of the error and the first line of its message."""

    name: str
    message: str

    @property
    def never_ran(self) -> bool:
        """Whether the request certainly changed nothing, so that repeating it is safe."""
        return self.name in _PASSING or self.name == "ConnectionRefusedError"


def is_panic(error: BaseException) -> bool:
    """Whether it is a panic inside the library, which is no Exception in Python."""
    return type(error).__module__ == "pyo3_runtime"


def is_foreign(error: BaseException) -> bool:
    """Whether the error comes from the library and must be translated."""
    return isinstance(error, (OSError, RuntimeError)) or is_panic(error)


def cause_of(error: BaseException) -> Cause:
    """Name and message of an error of the library."""
    text = str(error)
    match = _RPC.match(text)
    if match:
        name = match["name"].rpartition(".")[2].rpartition("$")[2]
        return Cause(name=name, message=_first_line(match["message"]))
    variant = _VARIANT.match(text) if type(error) is RuntimeError else None
    if isinstance(error, OSError) and "Connection refused" in text:
        return Cause(name="ConnectionRefusedError", message=_first_line(text))
    name = variant["name"] if variant else type(error).__name__
    return Cause(name=name, message=_first_line(text))


def is_caused_by(error: RemoteStorageError, name: str) -> bool:
    """Whether the error was raised from the library's error of this name."""
    return error.__cause__ is not None and cause_of(error.__cause__).name == name


def error_of_hdfs(error: BaseException, operation: str, target: str) -> RemoteStorageError:
    """The error to raise from `error`; `operation` is a verb phrase, `target` its object."""
    cause = cause_of(error)
    message = f"cannot {operation} {target}: {cause.name}: {cause.message}"
    if cause.name == "ChecksumError":
        return Corrupt(message)
    if cause.name in _INVALID or cause.name.startswith("NotImplemented"):
        return Invalid(message)
    hint = _HINTS.get(cause.name)
    return Unavailable(f"{message}; {hint}" if hint else message)


def _first_line(text: str) -> str:
    line = text.replace("\\n", "\n").replace("\\t", " ").split("\n", 1)[0].strip()
    return line[:_MESSAGE_MAX]
