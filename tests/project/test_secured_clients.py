"""No client of brokers in the product is without the security that the configuration asks for."""

import ast

from tests.project.tree import parse, show, sources

CLIENTS = {
    "AllowedOperations",
    "AnyBroker",
    "BrokerConnection",
    "BrokerShareGroups",
    "ConnectionSettings",
    "OwnBroker",
}
PRODUCTS = ("rlm/", "rlmm/")
AIOKAFKA = {"AIOKafkaConsumer", "AIOKafkaProducer", "AIOKafkaAdminClient", "AIOKafkaClient"}
MAKES_THEM = {"rlmm/clients.py"}
"""It makes each of them one of ours, with the security of its settings."""


def calls(module: ast.Module, names: set[str]) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def test_every_client_is_given_its_security() -> None:
    found, without = 0, []
    for path in sources(with_tests=False):
        if not show(path).startswith(PRODUCTS):
            continue
        for call in calls(parse(path), CLIENTS):
            found += 1
            if all(keyword.arg != "security" for keyword in call.keywords):
                without.append(f"{show(path)}:{call.lineno}")
    assert without == []
    assert found >= 10, "the classes have other names now: name them here"


def test_aiokafkas_own_clients_are_made_in_one_module() -> None:
    found = [
        f"{show(path)}:{call.lineno}"
        for path in sources(with_tests=False)
        if show(path).startswith((*PRODUCTS, "rlm_spark/", "tiered_reads/"))
        and show(path) not in MAKES_THEM
        for call in calls(parse(path), AIOKAFKA)
    ]
    assert found == []


def test_all_that_are_made_there_are_secured() -> None:
    module = next(parse(path) for path in sources(with_tests=False) if show(path) in MAKES_THEM)
    assert len(calls(module, AIOKAFKA)) == len(calls(module, {"_make_ours"})) == 3
