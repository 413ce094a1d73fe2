"""What docs/spark.md says of options, findings and commands is so; its code is run elsewhere."""

import contextlib
import enum
import io
import re
import shlex

from kip405.segment_check import FlawKind
from kip405.settings import Setting
from rlm_spark.pipelines.arguments import parser
from rlm_spark.plan.option_map import OPTIONS
from tests.project.tree import ROOT
from tiered_reads.values import ReadMode

PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


def rows(section: str) -> list[str]:
    """First cells of the table of a section, without the head."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def _default(row: Setting) -> str:
    value = row.default.value if isinstance(row.default, enum.Enum) else row.default
    return row.default_doc or ("none" if value is None else f"`{str(value).lower()}`")


def test_the_table_of_options_is_that_of_the_code() -> None:
    section = PAGE.partition("\n## Options\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `.*\|$", section, re.MULTILINE)
    assert shown == [f"| `{row.key}` | {_default(row)} | {row.doc} |" for row in OPTIONS]


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
    assert sorted(rows("Audit")) == sorted(kind.value for kind in FlawKind)


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
