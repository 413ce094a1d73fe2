"""Invokes commands in this process, as a shell does, and checks what they say of an error."""

import asyncio
import json
from typing import Any

from click.testing import CliRunner, Result

from rlm.cli.main import main
from tests.rlm.api.harness import Node


async def rlm(*arguments: str, env: dict[str, str] | None = None) -> Result:
    clean = {"RLM_ADDRESS": None, "RLM_SANDBOX": None, "RLM_PRINCIPAL": "ann"}
    runner = CliRunner(env={**clean, **(env or {})})
    return await asyncio.to_thread(runner.invoke, main, list(arguments))


async def asked(node: Node, *arguments: str) -> Result:
    return await rlm(*arguments, env={"RLM_ADDRESS": node.address})


async def as_json(node: Node, *arguments: str) -> Any:
    result = await asked(node, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def assert_one_line(result: Result, *words: str, status: int) -> None:
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("rlm: ")
    for word in words:
        assert word in line
