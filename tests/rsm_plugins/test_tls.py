"""TLS between service and plugin: who is let in, whom one trusts, addresses that others can
reach.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kip405.errors import Invalid, Unavailable
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.contract.server_tls import ServerTls
from rsm_plugins.contract.tls import Tls
from rsm_plugins.process.plugin import running_server
from tests.builders.certificates import Authority
from tests.rsm_plugins.harness import plugin_settings

DEADLINES = Deadlines(call_ms=20_000, copy_ms=20_000)


@asynccontextmanager
async def plugin(
    tmp_path: Path, authority: Authority, *names: str, clients: Authority | None = None
) -> AsyncIterator[str]:
    """Address of a plugin that speaks TLS, and mutually where `clients` is given."""
    server = authority.issue("plugin", *(names or ("127.0.0.1",)))
    settings = {"tls__cert__file": str(server.cert_file), "tls__key__file": str(server.key_file)}
    if clients is not None:
        settings["tls__client__ca__file"] = str(clients.ca_file)
    root = tmp_path / "store"
    root.mkdir()
    async with running_server(plugin_settings(root, **settings)) as (address, _):
        yield str(address)


async def asked(address: str, tls: Tls | None) -> str:
    """The name of the plugin at the address."""
    client = GrpcRemoteStorageManager.connect(
        address, principal="test", deadlines=DEADLINES, tls=tls
    )
    try:
        return (await client.get_info()).name
    finally:
        await client.close()


async def test_a_client_trusts_one_authority_only(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    async with plugin(tmp_path, authority) as address:
        assert await asked(address, Tls(ca_file=authority.ca_file)) == "local"
        for tls, why in (
            (Tls(ca_file=other.ca_file), "of no authority that is trusted"),
            (Tls(), "of no authority that is trusted"),
            (None, "it may want TLS"),
        ):
            with pytest.raises(Unavailable, match=f"plugin {address}: get info: .*{why}"):
                await asked(address, tls)


async def test_the_certificate_must_have_the_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with plugin(tmp_path, authority, "plugin.example") as address:
        with pytest.raises(Unavailable):
            await asked(address, Tls(ca_file=authority.ca_file))
        tls = Tls(ca_file=authority.ca_file, server_name="plugin.example")
        assert await asked(address, tls) == "local"


async def test_only_clients_with_a_certificate_are_let_in(tmp_path: Path) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    ours, foreign = clients.issue("service"), authority.issue("stranger")
    async with plugin(tmp_path, authority, clients=clients) as address:
        trusted = Tls(ca_file=authority.ca_file, cert_file=ours.cert_file, key_file=ours.key_file)
        assert await asked(address, trusted) == "local"
        stranger = Tls(
            ca_file=authority.ca_file, cert_file=foreign.cert_file, key_file=foreign.key_file
        )
        for tls in (stranger, Tls(ca_file=authority.ca_file)):
            with pytest.raises(Unavailable):
                await asked(address, tls)


async def test_with_tls_an_address_need_not_be_private(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = GrpcRemoteStorageManager.connect(
        "10.0.0.1:1", principal="t", deadlines=DEADLINES, tls=Tls(ca_file=authority.ca_file)
    )
    await client.close()


async def test_renewed_files_of_both_sides_are_taken_without_a_restart(tmp_path: Path) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    mine = clients.issue("service")
    tls = Tls(ca_file=authority.ca_file, cert_file=mine.cert_file, key_file=mine.key_file)
    async with plugin(tmp_path, authority, clients=clients) as address:
        client = GrpcRemoteStorageManager.connect(
            address, principal="test", deadlines=DEADLINES, tls=tls
        )
        assert (await client.get_info()).name == "local"
        authority.issue("plugin", "127.0.0.1")  # the files of the plugin, written again
        mine.cert_file.write_text("half a renewal")
        assert (await client.get_info()).name == "local"
        unknown = authority.issue("unknown")
        mine.cert_file.write_bytes(unknown.cert_file.read_bytes())
        mine.key_file.write_bytes(unknown.key_file.read_bytes())
        with pytest.raises(Unavailable, match="a certificate it trusts"):
            await client.get_info()
        clients.issue("service")
        assert (await client.get_info()).name == "local"
        await client.close()


async def test_a_renewed_certificate_whose_key_is_not_there_yet_ends_nothing(
    tmp_path: Path,
) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    mine, renewed = clients.issue("service"), clients.issue("renewed")
    tls = Tls(ca_file=authority.ca_file, cert_file=mine.cert_file, key_file=mine.key_file)
    async with plugin(tmp_path, authority, clients=clients) as address:
        client = GrpcRemoteStorageManager.connect(
            address, principal="test", deadlines=DEADLINES, tls=tls
        )
        assert (await client.get_info()).name == "local"
        mine.cert_file.write_bytes(renewed.cert_file.read_bytes())
        assert (await client.get_info()).name == "local"
        mine.key_file.write_bytes(renewed.key_file.read_bytes())
        assert (await client.get_info()).name == "local"
        await client.close()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    word = tmp_path / "word"
    word.write_text("no certificate")
    one = authority.issue("one")
    refused: dict[str, Tls | ServerTls] = {
        "tls.cert.file is given without tls.key.file": Tls(cert_file=one.cert_file),
        "tls.key.file is given without tls.cert.file": Tls(key_file=one.key_file),
        "word is not PEM": Tls(ca_file=word),
        "absent: No such file": Tls(ca_file=tmp_path / "absent"),
        "one.*two.* are not a certificate and its key": ServerTls(
            cert_file=one.cert_file, key_file=authority.issue("two").key_file
        ),
        "absent.key: No such file": ServerTls(
            cert_file=one.cert_file, key_file=tmp_path / "absent.key"
        ),
    }
    for why, tls in refused.items():
        with pytest.raises(Invalid, match=why):
            tls.credentials()
