"""No client of brokers in the product is without the security that the configuration asks for."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tests.project.tree import GROUP, findings, rule, rule_of_tests_too, show

pytestmark = GROUP

CLIENTS = {
    "AllowedOperations",
    "AnyBroker",
    "BrokerConnection",
    "BrokerShareGroups",
    "ConnectionSettings",
    "OwnBroker",
}
PRODUCTS = ("rlm/", "rlmm/")
AIOKAFKA = {
    "AIOKafkaAdminClient",
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ClosingConsumer",
}
MAKES_THEM = {"rlmm/clients.py"}
"""It makes each of them one of ours, with the security of its settings."""

PROGRAMS = {"tests/scenarios/clients/reader.py"}
"""Processes of their own: what they leave open ends with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A call of one of these classes."""

    name: str
    line: int
    is_secured: bool


@rule
def clients_made(module: ast.Module) -> Iterator[Made]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in CLIENTS | AIOKAFKA | {"_make_ours"}:
                is_secured = any(keyword.arg == "security" for keyword in node.keywords)
                yield Made(name=name, line=node.lineno, is_secured=is_secured)


def test_every_client_is_given_its_security() -> None:
    found = [
        (path, made)
        for path, made in findings(clients_made)
        if show(path).startswith(PRODUCTS) and made.name in CLIENTS
    ]
    assert [f"{show(path)}:{made.line}" for path, made in found if not made.is_secured] == []
    assert len(found) >= 10, "the classes have other names now: name them here"


def test_aiokafkas_own_clients_are_made_in_one_module() -> None:
    found = [
        f"{show(path)}:{made.line}"
        for path, made in findings(clients_made)
        if show(path).startswith((*PRODUCTS, "rlm_spark/", "tiered_reads/"))
        and show(path) not in MAKES_THEM
        and made.name in AIOKAFKA
    ]
    assert found == []


def test_all_that_are_made_there_are_secured() -> None:
    there = [made.name for path, made in findings(clients_made) if show(path) in MAKES_THEM]
    assert sum(name in AIOKAFKA for name in there) == there.count("_make_ours") == 3


@rule_of_tests_too
def opened_there(module: ast.Module) -> Iterator[bool]:
    """Whether it makes clients of aiokafka's; whether it has a way to close them for certain."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in AIOKAFKA - {"ClosingConsumer"}:
                yield False
            elif name == "opened":
                yield True


def test_aiokafkas_clients_leave_no_connection_to_another_test() -> None:
    there: dict[str, list[bool]] = {}
    for path, is_way in findings(opened_there):
        there.setdefault(show(path), []).append(is_way)
    makers = [name for name, found in there.items() if not all(found)]
    tests = [name for name in makers if name.startswith("tests/") and name not in PROGRAMS]
    assert [name for name in tests if not any(there[name])] == []
    assert len(tests) >= 10, "the classes have other names now: name them here"
