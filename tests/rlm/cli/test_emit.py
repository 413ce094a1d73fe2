"""`rlm topics enable --emit` prints what an operator applies; it needs no service."""

import pytest
from click.testing import CliRunner, Result

from rlm.cli.main import main

NOBODY = {"RLM_ADDRESS": "127.0.0.1:1", "RLM_SANDBOX": None, "RLM_PRINCIPAL": "ann"}


def enable(*options: str) -> Result:
    return CliRunner(env=NOBODY).invoke(main, ["topics", "enable", *options])


def test_h14_enable_emits_what_sets_the_topic_to_no_limit() -> None:
    done = enable("orders", "--trim", "--emit", "kafka-configs")
    assert done.exit_code == 0, done.output
    assert "--entity-name orders --add-config retention.ms=-1,retention.bytes=-1\n" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("orders", "--emit", "strimzi"), "--emit goes with --trim"),
        (("a b", "--trim", "--emit", "terraform"), "'a b' is no topic name"),
    ],
)
def test_what_cannot_be_emitted_is_one_line(options: tuple[str, ...], words: str) -> None:
    done = enable(*options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"rlm: {words}")
