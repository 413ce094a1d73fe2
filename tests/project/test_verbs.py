"""A new command has its place in the test of all commands on secured clusters, which runs late."""

from pathlib import Path

from tests.scenarios.verbs import leaves

_RUNS = Path(__file__).parents[1] / "scenarios" / "test_secured_verbs.py"


def test_every_command_is_run_on_secured_clusters() -> None:
    text = _RUNS.read_text()
    words = {leaf: ", ".join(f'"{word}"' for word in leaf) for leaf in leaves()}
    assert [leaf for leaf, said in words.items() if said not in text] == []
