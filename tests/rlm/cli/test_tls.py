"""Commands over TLS: the options, their variables, and one line for each way to fail."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from rsm_plugins.contract.server_tls import ServerTls
from tests.builders.certificates import Authority
from tests.rlm.api.harness import api_node
from tests.rlm.cli.invoking import assert_one_line, rlm
from tests.rlm.topics.cluster import Cluster

HOST = "127.0.0.1"


async def test_a_command_speaks_tls_shows_its_certificate_and_its_token(tmp_path: Path) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    shown, mine = authority.issue("service", "service.example"), clients.issue("ann")
    tls = ServerTls(
        cert_file=shown.cert_file, key_file=shown.key_file, client_ca_file=clients.ca_file
    )
    token = tmp_path / "token"
    token.write_text("secret\nnext\n")
    async with api_node(Cluster(), tls=tls, tokens=lambda: ("next", "secret")) as node:
        env = {
            "RLM_ADDRESS": node.address,
            "RLM_TLS_CA": str(authority.ca_file),
            "RLM_TLS_CERT": str(mine.cert_file),
            "RLM_TLS_KEY": str(mine.key_file),
            "RLM_TLS_SERVER_NAME": "service.example",
            "RLM_TOKEN_FILE": str(token),
        }
        options = {
            "--address": "RLM_ADDRESS",
            "--tls-ca": "RLM_TLS_CA",
            "--tls-cert": "RLM_TLS_CERT",
            "--tls-key": "RLM_TLS_KEY",
            "--tls-server-name": "RLM_TLS_SERVER_NAME",
            "--token-file": "RLM_TOKEN_FILE",
        }
        by_variables = await rlm("topics", "list", env=env)
        assert by_variables.exit_code == 0, by_variables.output
        words = [word for name, variable in options.items() for word in (name, env[variable])]
        by_options = await rlm("topics", "list", *words)
        assert (by_options.exit_code, by_options.stdout) == (0, by_variables.stdout)
        for change, why in (
            ({"RLM_TOKEN_FILE": ""}, "shows no token, and one is needed"),
            ({"RLM_TLS_SERVER_NAME": "other"}, "does not have the name dialled"),
            ({"RLM_TLS_CA": str(clients.ca_file)}, "of no authority that is trusted here"),
            ({"RLM_TLS_CERT": "", "RLM_TLS_KEY": ""}, "a certificate it trusts"),
        ):
            failed = await rlm("topics", "list", "--timeout", "60", env=env | change)
            assert failed.exit_code != 0
            assert why in failed.stderr
        plain = await rlm("topics", "list", env={"RLM_ADDRESS": node.address})
        assert "it may want TLS" in plain.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--tls-cert", "a.pem"), "--tls-cert is given without --tls-key"),
        (("--tls-ca", "absent.pem"), "cannot read absent.pem: No such file"),
        (("--token-file", "absent"), "--token-file: absent cannot be read"),
    ],
)
async def test_wrong_options_are_refused_in_one_line(options: tuple[str, ...], why: str) -> None:
    failed = await rlm("topics", "list", "--address", "127.0.0.1:1", *options)
    assert_one_line(failed, why, status=failed.exit_code)


async def test_a_failed_handshake_prints_one_line_and_nothing_of_grpcs_own(tmp_path: Path) -> None:
    async with api_node(Cluster()) as plain:
        command = [sys.executable, "-m", "rlm.cli.main", "topics", "list"]
        options = ["--address", plain.address, "--tls-ca", str(Authority(tmp_path).ca_file)]
        done = await asyncio.to_thread(
            subprocess.run, [*command, *options], capture_output=True, text=True, timeout=240
        )
    assert done.stderr.splitlines() == [
        f"rlm: service at {plain.address}: not reachable: it does not speak TLS"
    ]
