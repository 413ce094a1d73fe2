"""What docs/spark.md says of options, findings and commands is so; its code is run elsewhere."""

import contextlib
import io
import re
import shlex

from rlm_spark.pipelines.arguments import parser
from rlm_spark.pipelines.findings import FindingKind
from rlm_spark.plan.option_map import KNOWN_OPTIONS
from rlm_spark.values import ReadMode
from tests.project.tree import ROOT

PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


def rows(section: str) -> list[str]:
    """First cells of the table of a section, without the head."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_every_option_is_on_the_page_and_no_other() -> None:
    # A section of its own says what they do; the consumer's own are Kafka's to document.
    consumers = ["kafka.bootstrap.servers", "kafka.isolation.level"]
    assert sorted(rows("Options")) == sorted([*KNOWN_OPTIONS, *consumers])


def test_every_read_mode_is_on_the_page() -> None:
    assert rows("Read modes") == [
        mode.value
        for mode in (
            ReadMode.KAFKA_PREFERRED,
            ReadMode.REMOTE_PREFERRED,
            ReadMode.REMOTE_ONLY,
            ReadMode.KAFKA_ONLY,
        )
    ]


def test_every_finding_is_on_the_page() -> None:
    assert sorted(rows("Audit")) == sorted(kind.value for kind in FindingKind)


def test_commands_and_flags_are_taken() -> None:
    known = {
        flag for command in ("export", "audit") for flag in re.findall(r"--[a-z-]+", _help(command))
    }
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known
    commands = re.findall(r"^rlm ((?:export|audit) .*)$", PAGE, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        parser({}).parse_args(shlex.split(command))


def _help(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        parser({}).parse_args([command, "--help"])
    return out.getvalue()
