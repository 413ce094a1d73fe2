"""Every locked package has a licence that we allow, and the bill of materials lists them all."""

import json
from itertools import chain

import pytest

from build_tools import sbom
from build_tools.licences import REVIEWED, Metadata, expression_of, faults, is_allowed
from build_tools.locks import Pin

PINS = tuple(chain.from_iterable(sbom.locked().values()))
REVIEWS = [Pin(name=name, version="1", marker="", sha256=frozenset({"0"})) for name in REVIEWED]
EXAMPLE = Pin(name="example", version="1.0", marker="", sha256=frozenset({"00", "11"}))


def test_every_locked_package_has_a_licence_that_is_allowed() -> None:
    assert faults(PINS, sbom.installed()) == []


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (Metadata(version="1", expression="MIT OR Apache-2.0", text="x"), "MIT OR Apache-2.0"),
        (Metadata(version="1", text="Apache 2"), "Apache-2.0"),
        (Metadata(version="1", text="MPL-2.0\n"), "MPL-2.0"),
        (
            Metadata(
                version="1", text="long", classifiers=["License :: OSI Approved :: MIT License"]
            ),
            "MIT",
        ),
        (
            Metadata(version="1", classifiers=["License :: A", "License :: BSD License"]),
            "A AND LicenseRef-BSD",
        ),
        (Metadata(version="1", text="see the file"), ""),
        (None, ""),
    ],
)
def test_what_metadata_says(metadata: Metadata | None, expected: str) -> None:
    assert expression_of("example", metadata) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("MIT AND Zlib", True),
        ("AGPL-3.0-only OR MIT", True),
        ("MIT AND AGPL-3.0-only", False),
        ("AGPL-3.0-only", False),
        ("MIT AND (AGPL-3.0-only OR Zlib)", False),
        ("", False),
    ],
)
def test_what_is_allowed(expression: str, expected: bool) -> None:
    assert is_allowed(expression) is expected


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        (None, "example: its licence is not known: run make setup, or review it"),
        (
            Metadata(version="1.0"),
            "example: its licence is not known: run make setup, or review it",
        ),
        (Metadata(version="1.0", text="AGPL"), "example: its licence is not known"),
        (
            Metadata(version="1.0", expression="AGPL-3.0-only"),
            "example: AGPL-3.0-only is not allowed",
        ),
        (Metadata(version="1.1", expression="MIT"), "example: 1.1 is installed, 1.0 locked"),
    ],
)
def test_what_is_not_allowed_is_named(metadata: Metadata | None, fault: str) -> None:
    installed = {} if metadata is None else {"example": metadata}
    (found,) = faults([EXAMPLE, *REVIEWS], installed)
    assert found.startswith(fault)


def test_a_review_of_a_package_that_is_gone_is_named() -> None:
    found = faults(REVIEWS[1:], {})
    assert found == [f"{REVIEWS[0].name}: reviewed, and in no lock"]


def test_the_bill_of_materials_has_every_pin_with_its_hashes() -> None:
    packages = sbom.installed()
    made = sbom.document(sbom.locked(), packages, "1.2.3")
    assert json.loads(json.dumps(made)) == made
    assert (made["bomFormat"], made["metadata"]["component"]["version"]) == ("CycloneDX", "1.2.3")
    components = {(one["name"], one["version"]): one for one in made["components"]}
    assert len(components) == len(made["components"])
    for pin in PINS:
        one = components[pin.name, pin.version]
        assert {row["content"] for row in one["hashes"]} == pin.sha256
        assert one["licenses"] == [{"expression": expression_of(pin.name, packages.get(pin.name))}]
        assert one["purl"] == f"pkg:pypi/{pin.name}@{pin.version}"


def test_a_component_says_which_locks_have_it() -> None:
    made = sbom.document({"demo": (EXAMPLE,), "all": (EXAMPLE,), "bootstrap": ()}, {}, "1")
    (one,) = made["components"]
    assert [row["value"] for row in one["properties"]] == ["demo", "all"]
    assert "licenses" not in one
