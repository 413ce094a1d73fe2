"""What HDFS and its client library say, and what the caller must do about it."""

import pytest

from kip405.errors import Corrupt, Invalid, RemoteStorageError, Unavailable
from rsm_plugins.hdfs.errors import cause_of, error_of_hdfs, is_foreign, is_panic


class PanicException(BaseException):
    """As pyo3 names it."""

    __module__ = "pyo3_runtime"


def rpc(name: str, message: str = "why\\n\\tat a.B.c(D.java:1)") -> RuntimeError:
    return RuntimeError(f'RPCError("{name}", "{message}")')


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (rpc("org.apache.hadoop.hdfs.server.namenode.SafeModeException"), Unavailable, "safe mode"),
        (rpc("org.apache.hadoop.ipc.StandbyException"), Unavailable, "no name node is active"),
        (rpc("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException"), Unavailable, "quota"),
        (rpc("org.apache.hadoop.security.AccessControlException"), Unavailable, "right to read"),
        (rpc("java.io.IOException", "could only be written to 0 of the 1"), Unavailable, "0 of"),
        (rpc("org.apache.hadoop.fs.InvalidPathException"), Invalid, "InvalidPathException"),
        (RuntimeError("ChecksumError"), Corrupt, "ChecksumError"),
        (RuntimeError('DataTransferError("All nodes failed for write")'), Unavailable, "All nodes"),
        (RuntimeError('SASLError("no ticket")'), Unavailable, "Kerberos settings"),
        (RuntimeError('InvalidArgument("No NameNode hosts found")'), Invalid, "No NameNode"),
        (NotImplementedError("encryption"), Invalid, "encryption"),
        (OSError("Connection refused (os error 111)"), Unavailable, "refused"),
        (PanicException("there is no reactor running"), Unavailable, "PanicException: there is"),
    ],
)
def test_kinds(error: BaseException, kind: type[RemoteStorageError], said: str) -> None:
    assert is_foreign(error)
    made = error_of_hdfs(error, "copy to", "/x/y")
    assert type(made) is kind
    assert said in str(made)
    assert "cannot copy to /x/y" in str(made)
    assert "\n" not in str(made) and "D.java" not in str(made)


def test_what_is_safe_to_repeat() -> None:
    assert cause_of(rpc("org.apache.hadoop.ipc.StandbyException")).never_ran
    assert cause_of(OSError("Connection refused (os error 61)")).never_ran
    assert not cause_of(OSError("Connection reset by peer (os error 104)")).never_ran
    assert not cause_of(rpc("java.io.IOException")).never_ran


def test_a_panic_is_known() -> None:
    assert is_panic(PanicException("x"))
    assert not is_panic(RuntimeError("x"))


def test_what_is_not_the_librarys_is_left_alone() -> None:
    assert not any(map(is_foreign, (KeyboardInterrupt(), ValueError(), KeyError("x"))))
