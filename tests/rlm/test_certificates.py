"""When certificates end, out of their files (H38)."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kip405.errors import Invalid
from rlm.service.certificates import CertificatePath, Certificates, ends_of, read_file
from tests.builders.certificates import Authority
from tests.builders.clock import ManualClock
from tests.builders.threads import THREADS

EXPIRED_MS = int(datetime(2021, 1, 1, tzinfo=UTC).timestamp() * 1000)
FAR_MS = int(datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def shown(path: Path, *, is_shown: bool = True) -> CertificatePath:
    return CertificatePath(path=path, use="of the API", is_shown=is_shown)


def test_h38_the_end_is_the_one_that_a_tls_library_reads(authority: Authority) -> None:
    path = authority.issue("broker").cert_file
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca_file)
    [known] = context.get_ca_certs()
    end_s = ssl.cert_time_to_seconds(str(known["notAfter"]))
    assert list(ends_of(authority.ca_file.read_bytes())) == [end_s * 1000] == [FAR_MS]
    assert read_file(shown(path)).ends_at_ms == FAR_MS


def test_of_a_chain_the_first_end_counts_of_authorities_the_last(authority: Authority) -> None:
    old = authority.issue("old", is_expired=True).cert_file
    both = old.with_name("both.pem")
    both.write_bytes(authority.issue("new").cert_file.read_bytes() + old.read_bytes())
    assert read_file(shown(both)).ends_at_ms == EXPIRED_MS
    assert read_file(shown(both, is_shown=False)).ends_at_ms == FAR_MS


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    gone = read_file(shown(tmp_path / "gone.pem"))
    assert gone.ends_at_ms is None and "No such file" in str(gone.error)
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    assert read_file(shown(empty)).ends_at_ms is None


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_damaged_certificate_is_an_error(authority: Authority, cut: int) -> None:
    der = ssl.PEM_cert_to_DER_cert(authority.ca_file.read_text())
    pem = ssl.DER_cert_to_PEM_cert(der[:cut]).encode()
    with pytest.raises(Invalid, match="damaged"):
        list(ends_of(pem))


def test_a_year_of_four_digits_is_read(authority: Authority) -> None:
    path = authority.issue("far", end=b"20491231235959Z").cert_file
    assert read_file(shown(path)).ends_at_ms == FAR_MS


async def test_all_files_are_looked_at(authority: Authority) -> None:
    paths = [shown(authority.ca_file), shown(authority.issue("x", is_expired=True).cert_file)]
    certificates = Certificates(paths, ManualClock(), THREADS)
    await certificates.check()
    ends = [found.ends_at_ms for found in certificates.files]
    assert ends == [FAR_MS, EXPIRED_MS]
