"""The locks are complete, agree with each other, name no address, and have wheels everywhere."""

import json
import re

import pytest

from build_tools.locks import DEMO_PROFILES, PROFILES, RECORD, Pin, lock_path, read_pins
from build_tools.wheels import PLATFORMS, accepted_tags, check, is_needed, missing_wheels

DEMO_LIMIT_MB = 300
PIN = Pin(name="example", version="1.0", marker="", sha256=frozenset({"00"}))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_lock_names_no_address_and_no_path(profile: str) -> None:
    text = lock_path(profile).read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index|--find-links|(^|\s)/", text, re.MULTILINE)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_pin_is_hashed(profile: str) -> None:
    pins = read_pins(lock_path(profile).read_text(encoding="utf-8"))
    assert pins and all(pin.sha256 for pin in pins)


def test_the_record_of_wheels_proves_every_lock() -> None:
    assert check(json.loads(RECORD.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("profile", DEMO_PROFILES)
def test_the_demo_is_small_and_lean(profile: str) -> None:
    names = {pin.name for pin in read_pins(lock_path(profile).read_text(encoding="utf-8"))}
    assert names.isdisjoint({"pytest", "hypothesis", "mypy"})
    assert ("pyspark" in names) is ("pyarrow" in names) is (profile == "demo-spark")
    assert ("aiobotocore" in names) is (profile == "demo-s3")
    assert ("hdfs-native" in names) is (profile == "demo-hdfs")
    sizes = json.loads(RECORD.read_text(encoding="utf-8"))["download_mb"][profile]
    assert set(sizes) == set(PLATFORMS)
    assert max(sizes.values()) < DEMO_LIMIT_MB or profile == "demo-spark"


def test_a_changed_lock_needs_a_new_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    record["locks"]["demo"] = "0" * 64
    assert check(record) == [
        "demo.txt changed since its wheels were recorded: run make check-wheels"
    ]


@pytest.mark.parametrize(
    ("wheel", "lacking"),
    [
        ("example-1.0-py3-none-any.whl", 0),
        ("example-1.0-cp311-abi3-manylinux_2_28_x86_64.whl", 8),
        ("example-1.0-cp311-cp311-manylinux_2_17_aarch64.whl", 11),
        ("example-1.0-cp311-cp311-musllinux_1_2_x86_64.whl", 12),
        ("example-1.0-cp313-cp313-macosx_11_0_arm64.whl", 11),
        ("example-1.0-cp311-abi3-manylinux_2_34_x86_64.whl", 12),
    ],
)
def test_a_missing_wheel_is_found(wheel: str, lacking: int) -> None:
    assert len(list(missing_wheels([PIN], {"example": [wheel]}))) == lacking


def test_markers_are_evaluated_for_the_promised_platform_not_for_this_one() -> None:
    windows = Pin(
        name="example", version="1", marker="sys_platform == 'win32'", sha256=frozenset({"0"})
    )
    assert not any(is_needed(windows, platform, "3.11") for platform in PLATFORMS)


def test_abi_tags_follow_the_python() -> None:
    assert accepted_tags("linux_x86_64", "3.11") != accepted_tags("linux_x86_64", "3.12")


@pytest.mark.parametrize("line", ["example>=1", "example==1.0", "-e ."])
def test_what_is_not_an_exact_hashed_pin_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not an exact, hashed pin"):
        read_pins(line)
