"""When certificates end, out of their files (H38)."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kip405.errors import Invalid
from rlm.plans.problem_rules import certificate_findings
from rlm.plans.problems import ProblemKind
from rlm.proxy.tls_files import ListenerTls, ProxyTls, UpstreamTls
from rlm.service.certificates import (
    CertificatePath,
    Certificates,
    certificate_paths,
    ends_of,
    files_together,
    read_file,
)
from tests.builders.certificates import Authority
from tests.builders.clock import ManualClock
from tests.builders.threads import THREADS
from tests.rlm.plans.test_h38_problem_rules import LIMITS
from tests.rlm.test_startup import configured

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


async def test_files_that_do_not_fit_each_other_are_a_problem_while_the_former_ones_serve(
    authority: Authority,
) -> None:
    one, other = authority.issue("one"), authority.issue("other")
    listener = ListenerTls(cert_file=str(one.cert_file), key_file=str(one.key_file))
    upstream = UpstreamTls(ca_file=str(authority.ca_file))
    together = files_together(ProxyTls(listener=listener, upstream=upstream))
    certificates = Certificates([], ManualClock(), THREADS, together)
    await certificates.check()
    assert certificates.files == ()
    one.key_file.write_bytes(other.key_file.read_bytes())
    authority.ca_file.write_text("nothing", encoding="ascii")
    await certificates.check()
    of_clients, of_broker = certificate_findings(certificates.files, LIMITS, 0)
    assert {of_clients.kind, of_broker.kind} == {ProblemKind.CERTIFICATE_UNUSABLE}
    assert of_clients.subject == str(one.cert_file)
    assert "proxy.tls" in of_clients.text and "are not a certificate and its key" in of_clients.text
    assert of_broker.subject == str(authority.ca_file) and "broker.tiered.tls" in of_broker.text


def test_the_files_of_the_proxy_are_among_those_that_end(tmp_path: Path) -> None:
    names = ("proxy.tls.cert.file", "proxy.tls.key.file", "broker.tiered.tls.ca.file")
    more = "".join(f"{name}: {tmp_path}/{name}\n" for name in names)
    config = configured(tmp_path, more)
    uses = {str(one.path): one.is_shown for one in certificate_paths(config)}
    assert uses == {
        f"{tmp_path}/proxy.tls.cert.file": True,
        f"{tmp_path}/broker.tiered.tls.ca.file": False,
    }
