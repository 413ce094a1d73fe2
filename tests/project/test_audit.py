"""Every locked version was held against known weaknesses, and none is there without a reason."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from build_tools import audit
from build_tools.advisories import Finding, findings
from build_tools.audit import Accepted, NoAdvisories, faults
from build_tools.locks import AUDIT
from tests.project.repositories import committed, require_git

PIN = ("example", "1.5")
FOUND = Finding(package="example", version="1.5", id="A-1", aliases=("CVE-1",), fixed=("1.6",))


def written(found: Iterable[Finding] = (), audited: Iterable[str] = ("example==1.5",)) -> Any:
    """A record as it is read back."""
    made = {"audited": list(audited), "findings": [asdict(one) for one in found]}
    return json.loads(json.dumps(made))


def advisory(*events: Mapping[str, str], name: str = "example", **more: Any) -> dict[str, Any]:
    """One of a package of PyPI, with one range of versions."""
    return {
        "id": "A-1",
        "aliases": ["CVE-1"],
        "affected": [
            {
                "package": {"ecosystem": "PyPI", "name": name},
                "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
            }
        ],
        **more,
    }


def about(**affected: Any) -> dict[str, Any]:
    """One of the example, without a range."""
    row = {"package": {"ecosystem": "PyPI", "name": "example"}, **affected}
    return {"id": "A-1", "affected": [row]}


def test_every_locked_version_was_audited_and_has_no_weakness_without_a_reason() -> None:
    assert faults(json.loads(AUDIT.read_text(encoding="utf-8")), audit.locked()) == []


def test_every_acceptance_has_a_reason() -> None:
    assert all(len(one.reason.split()) >= 5 for one in audit.ACCEPTED.values())


@pytest.mark.parametrize(
    ("events", "affected"),
    [
        ([{"introduced": "0"}], True),
        ([{"introduced": "0"}, {"fixed": "1.6"}], True),
        ([{"introduced": "0"}, {"fixed": "1.5"}], False),
        ([{"introduced": "0"}, {"fixed": "1.5.0"}], False),
        ([{"introduced": "0"}, {"fixed": "1.10"}], True),
        ([{"introduced": "0"}, {"fixed": "1.5.post1"}], True),
        ([{"introduced": "1.5"}], True),
        ([{"introduced": "1.6"}], False),
        ([{"introduced": "1.5rc1"}, {"fixed": "1.5rc2"}], False),
        ([{"introduced": "0"}, {"last_affected": "1.5"}], True),
        ([{"introduced": "1.5"}, {"last_affected": "1.5"}], True),
        ([{"introduced": "0"}, {"last_affected": "1.4.9"}], False),
        ([{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.4"}], True),
        ([{"introduced": "1.4"}, {"fixed": "1.2"}, {"introduced": "0"}], True),
        ([{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "2.0"}, {"fixed": "2.1"}], False),
        ([{"introduced": "0"}, {"limit": "1.5"}], False),
        ([{"introduced": "0"}, {"limit": "*"}], True),
        ([{"introduced": "0"}, {"fixed": "the next one"}], True),
        ([], True),
    ],
)
def test_which_versions_an_advisory_affects(events: list[dict[str, str]], affected: bool) -> None:
    assert bool(findings([advisory(*events)], [PIN])) is affected


@pytest.mark.parametrize(
    ("said", "affected"),
    [
        (about(versions=["1.4", "1.5.0"]), True),
        (about(versions=["1.4", "unknown"]), False),
        (about(), True),
        (about(ranges=[{"type": "GIT", "events": [{"introduced": "0"}]}]), True),
        (about(ranges=[{"type": "GIT", "events": []}], versions=["1.4"]), False),
    ],
)
def test_versions_are_named_one_by_one_or_not_at_all(said: dict[str, Any], affected: bool) -> None:
    assert bool(findings([said], [PIN])) is affected


def test_a_version_outside_of_the_range_that_is_named_is_affected() -> None:
    said = advisory({"introduced": "2.0"})
    said["affected"][0]["versions"] = ["1.5"]
    assert findings([said], [PIN])


def test_a_finding_has_the_names_of_the_weakness_and_what_corrects_it() -> None:
    said = advisory({"introduced": "0"}, {"fixed": "1.10"}, {"fixed": "1.6"}, name="Ex_Ample")
    (found,) = findings([said], [("ex-ample", "1.5")])
    assert found == Finding(
        package="ex-ample", version="1.5", id="A-1", aliases=("CVE-1",), fixed=("1.6", "1.10")
    )
    assert str(found) == "ex-ample==1.5: A-1 (CVE-1), fixed in 1.6, 1.10"


def test_each_locked_version_of_a_package_is_asked_about() -> None:
    said = advisory({"introduced": "0"}, {"fixed": "1.6"})
    pins = [("example", "1.7"), ("example", "1.5"), ("other", "1.5")]
    assert [one.version for one in findings([said], pins)] == ["1.5"]


def test_what_was_withdrawn_or_is_of_another_package_is_no_finding() -> None:
    everything = {"introduced": "0"}
    assert findings([advisory(everything, withdrawn="2026-01-01T00:00:00Z")], [PIN]) == []
    assert findings([advisory(everything, name="example-extra")], [PIN]) == []
    elsewhere = advisory(everything)
    elsewhere["affected"][0]["package"]["ecosystem"] = "npm"
    assert findings([elsewhere], [PIN]) == []


def test_a_version_that_was_not_audited_is_named_and_one_that_is_gone_too() -> None:
    found = faults(written(audited=["example==1.4"]), [PIN], {})
    assert found == [
        "example==1.5: locked, and not audited: run make audit ADVISORIES=FOLDER",
        "example==1.4: audited, and in no lock: run make audit ADVISORIES=FOLDER",
    ]


def test_a_weakness_that_nobody_accepted_is_named() -> None:
    (line,) = faults(written([FOUND]), [PIN], {})
    assert line.startswith("example==1.5: A-1 (CVE-1), fixed in 1.6; upgrade it, or accept it")


@pytest.mark.parametrize("id_", ["A-1", "CVE-1"])
def test_a_weakness_is_accepted_by_each_of_its_names(id_: str) -> None:
    accepted = {id_: Accepted(package="example", reason="we never call it")}
    assert faults(written([FOUND]), [PIN], accepted) == []


def test_an_acceptance_is_of_one_package_and_ends_with_its_weakness() -> None:
    accepted = {"A-1": Accepted(package="other", reason="we never call it")}
    refused, unneeded = faults(written([FOUND]), [PIN], accepted)
    assert refused.startswith("example==1.5: A-1")
    assert unneeded == (
        "A-1: accepted for other, and found in no locked version: delete the acceptance"
    )


AS_YAML = """
id: A-1
withdrawn: null
affected:
- package: {ecosystem: PyPI, name: Example}
  ranges:
  - type: ECOSYSTEM
    events:
    - introduced: 1.10
"""


def test_the_record_says_what_was_read_and_what_of_it_affects_us(tmp_path: Path) -> None:
    of_other = {**advisory({"introduced": "0"}, name="other"), "id": "GHSA-2"}
    folder = committed(
        tmp_path,
        {
            "vulns/example/A-1.yaml": AS_YAML,
            "2026/other.json": json.dumps(of_other),
            ".github/broken.yaml": "a: b: c",
            "triage/list.yaml": "- example",
            "README.md": "Advisories",
        },
    )
    (tmp_path / "not-committed.json").write_text(json.dumps(of_other), encoding="utf-8")
    made = audit.record(folder, [("example", "1.9"), ("example", "1.11")])
    assert made["source"]["advisories"] == {"A": 1, "GHSA": 1}
    assert made["source"]["day"] == "2026-03-02"
    assert made["audited"] == ["example==1.9", "example==1.11"]
    read_back = json.loads(json.dumps(made))
    assert [(one.id, one.version) for one in audit.findings_of(read_back)] == [("A-1", "1.11")]


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"README.md": "nothing"}, "no advisory about a package of PyPI"),
        ({"a/B-1.yaml": "id: [", "b.json": "{}"}, "a/B-1.yaml cannot be read"),
        ({"b.json": "{"}, "b.json cannot be read"),
    ],
)
def test_a_folder_without_readable_advisories_makes_no_record(
    tmp_path: Path, files: dict[str, str], fault: str
) -> None:
    with pytest.raises(NoAdvisories, match=fault):
        audit.record(committed(tmp_path, files), [PIN])


def test_a_folder_that_is_no_repository_makes_no_record(tmp_path: Path) -> None:
    require_git()
    with pytest.raises(NoAdvisories, match="none: fatal: cannot change to"):
        audit.record(tmp_path / "none", [PIN])


@pytest.mark.parametrize("arguments", [[], [""], ["one", "two"]])
def test_without_a_folder_it_says_what_it_needs(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main(arguments) == 2
    assert "make audit ADVISORIES=FOLDER" in capsys.readouterr().out
