"""What a machine on which a client's program cannot be made says of it."""

import sys

from tests.scenarios.client_programs import failure


def test_a_command_that_does_not_end_has_failed() -> None:
    assert failure(("tail", "-f", "/dev/null"), limit_s=0.2) == "no end in 0.2 s"


def test_a_command_that_fails_says_why() -> None:
    assert failure((sys.executable, "-c", "raise SystemExit('no route')")) == "no route"
    assert failure((sys.executable, "-c", "raise SystemExit(1)")) == "without a word"
    assert failure((sys.executable, "-c", "")) == ""
