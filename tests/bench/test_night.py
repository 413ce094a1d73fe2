"""The night: its parts, and how they end."""

import argparse
import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import night
from bench.night import PARTS, Part, main
from bench.plan import MIB, RECORD_BYTES, Options


def test_parts_have_names_of_their_own() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)


@pytest.mark.parametrize(
    "part", [one for one in PARTS if one.name.startswith("read-")], ids=lambda part: part.name
)
def test_what_is_read_remotely_has_three_segments_a_partition(part: Part) -> None:
    """The open one is not copied."""
    given = dict(zip(part.arguments, part.arguments[1:], strict=False))
    options = replace(
        Options.full(),
        size_mib=int(given["--size-mib"]),
        segment_mib=int(given.get("--segment-mib", Options.full().segment_mib)),
    )
    partitions = int(given["--partitions"])
    size_mib = options.records(partitions) * RECORD_BYTES // MIB
    assert size_mib / partitions >= 3 * options.segment_mib


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Parts that succeed, fail, and take too long; answers the folder of the results."""
    code = {
        "good": "import sys; open(sys.argv[2] + '/' + sys.argv[4] + '.json', 'w').write('{}')",
        "bad": "raise SystemExit(3)",
        "slow": "import time; time.sleep(60)",
    }
    for name, text in code.items():
        (tmp_path / f"part_{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    parts = tuple(Part(name=name, module=f"part_{name}") for name in code)
    monkeypatch.setattr(night, "PARTS", parts)
    monkeypatch.setattr(night, "_LIMIT_S", 8)
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def ended(out: Path) -> dict[str, int | None]:
    rows = json.loads((out / "night.json").read_text(encoding="utf-8"))["parts"]
    return {row["name"]: row["exit_code"] for row in rows}


def test_a_part_that_fails_or_takes_too_long_does_not_end_the_others(
    fakes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ""
    for _ in range(3):  # a stall of the machine may hold up a part for longer than the limit
        assert main(["--out", str(fakes)]) == 1
        said = capsys.readouterr().out
        if ended(fakes) == {"good": 0, "bad": 3, "slow": None}:
            break
    assert ended(fakes) == {"good": 0, "bad": 3, "slow": None}
    assert "failed: bad, slow" in said
    assert "1 of 3 parts were measured" in said


def test_a_night_goes_on_with_what_has_no_result(fakes: Path) -> None:
    (fakes / "bad.json").write_text("{}", encoding="utf-8")
    (fakes / "slow.json").write_text("{}", encoding="utf-8")
    assert main(["--out", str(fakes), "--resume"]) == 0
    assert ended(fakes) == {"good": 0}


def test_a_part_that_there_is_not_is_refused(
    fakes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(fakes), "--only", "good,rea"]) == 1
    assert "no such part: rea; there are good, bad, slow" in capsys.readouterr().err


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_the_arguments_of_a_part_are_options_of_its_module(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def parse(self: argparse.ArgumentParser, arguments: list[str] | None = None) -> None:
        seen.append(list(arguments or ()))
        known, unknown = self.parse_known_args(arguments)
        assert unknown == []
        assert (known.out, known.name) == ("out", part.name)
        raise SystemExit(0)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    module = f"{part.module}.__main__" if part.module in ("bench", "bench.stores") else part.module
    made = importlib.import_module(module)
    with pytest.raises(SystemExit):
        made.main(["--out", "out", "--name", part.name, *part.arguments])
    assert seen
