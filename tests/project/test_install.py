"""What the installer says: progress from pip's lines, and one line when something is missing."""

import pytest

from build_tools.install import FETCHED_LATER, explain, holders, profile_of, show_progress
from build_tools.locks import DEMO_PROFILES

PIP_LINES = [
    "Collecting example==1.0 (from -r demo.txt (line 3))",
    "  Downloading example-1.0-py3-none-any.whl (60.0 MB)",
    "Progress 0 of 60000000",
    "Progress 30000000 of 60000000",
    "Progress 60000000 of 60000000",
    "Installing collected packages: example",
    "Successfully installed example-1.0",
]


def test_progress_is_shown_and_kept_out_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    kept = list(show_progress(PIP_LINES))
    assert [line for line in kept if line.startswith("Progress")] == []
    assert capsys.readouterr().out.splitlines() == [
        "  downloaded 30 MB (example)",
        "  downloaded 60 MB (example)",
        "  installing",
    ]


def test_nothing_is_shown_when_everything_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    list(show_progress(["Requirement already satisfied: example==1.0"]))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: Retrying after connection broken by 'NewConnectionError(...)': /simple/pip/",
        "ERROR: Could not find a version that satisfies the requirement x (from versions: none)",
    ],
)
def test_no_network_is_said_in_one_line_that_names_what_is_missing(line: str) -> None:
    said = explain([line, "ERROR: No matching distribution found for pip==1"], "demo.txt")
    assert "no package index within reach, so demo.txt cannot be installed" in said
    assert "\n" not in said


def test_another_failure_is_reported_in_pips_own_words() -> None:
    lines = ["Collecting x", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "more"]
    assert "cannot install demo.txt: ERROR: THESE PACKAGES DO NOT MATCH" in explain(
        lines, "demo.txt"
    )


@pytest.mark.parametrize(
    ("arguments", "profile"),
    [
        (["all"], "all"),
        (["demo"], "demo"),
        (["demo", "local"], "demo"),
        (["demo", "s3"], "demo-s3"),
        (["demo", "hdfs"], "demo-hdfs"),
        (["demo", "spark"], "demo-spark"),
        (["demo", "tape"], None),
        (["bootstrap"], None),
        ([], None),
    ],
)
def test_a_demos_store_decides_what_is_installed(arguments: list[str], profile: str | None) -> None:
    assert profile_of(arguments) == profile


def test_the_plain_demo_is_content_with_more_than_it_needs() -> None:
    assert holders("demo") == {*DEMO_PROFILES, "all"}
    assert holders("demo-s3") == {"demo-s3", "all"}
    assert set(FETCHED_LATER) == set(DEMO_PROFILES)
