"""The console of a service as its settings make it: who is asked for what, and where it is off."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlm.api.principals import token_hash
from rlm.console.access import ConsoleAccess
from rlm.console.routes import ConsoleRoutes
from tests.builders.clock import ManualClock
from tests.builders.service import built_service

PRINCIPALS = f"User:a:\n  tokens: ['{token_hash('t')}']\n  topics: {{orders: [read]}}\n"


async def _routes(path: Path, settings: Mapping[str, object]) -> ConsoleRoutes | None:
    """None = the service has no console."""
    async with built_service(path, ManualClock(), settings) as service:
        routes = service._listening._http._routes
        found = {getattr(one.handler, "__self__", None) for one in routes} - {None}
        if not found:
            assert not routes
            return None
        [console] = found
        assert isinstance(console, ConsoleRoutes)
        return console


async def _access(path: Path, settings: Mapping[str, object]) -> ConsoleAccess | None:
    found = await _routes(path, settings)
    return None if found is None else found._access


@pytest.mark.parametrize("acts", [False, True])
async def test_it_only_reads_unless_a_setting_says_otherwise(tmp_path: Path, acts: bool) -> None:
    found = await _routes(tmp_path, {"console.actions": True} if acts else {})
    assert found is not None
    assert (found._actions is not None) is acts
    assert any(route.method == "POST" for route in found.routes()) is acts


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"api.token.file": "token"}, {"api_asks": True}),
        ({"api.principals.file": "principals", "api.token.file": "token"}, {"api_asks": True}),
        ({"grpc.listen": "unix:/nowhere/rlm.sock"}, {"api_is_closed": True}),
        ({"allow_insecure": True}, {"allows_all": True}),
    ],
)
async def test_who_is_asked_for_what(
    tmp_path: Path, settings: Mapping[str, Any], expected: Mapping[str, bool]
) -> None:
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "principals").write_text(PRINCIPALS)
    given = {
        name: str(tmp_path / value) if name.endswith(".file") else value
        for name, value in settings.items()
    }
    found = await _access(tmp_path, given)
    assert found is not None
    flags = {name: getattr(found, name) for name in ("api_asks", "api_is_closed", "allows_all")}
    usual = {"api_asks": False, "api_is_closed": False, "allows_all": False}
    assert flags == usual | dict(expected)
    assert found.http_tokens() == ()


async def test_the_token_of_http_counts_where_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t\n")
    found = await _access(tmp_path, {"http.token.file": str(tmp_path / "token")})
    assert found is not None and found.http_tokens() == ("t",)


async def test_a_console_that_is_switched_off_has_no_path(tmp_path: Path) -> None:
    assert await _access(tmp_path, {"console.enabled": False}) is None
