"""The benchmark works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.plan import VARIANTS


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_quick_reads_all_three_ways_and_writes_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--warm", "--batches-of-one")  # a service that starts again: the stores' benchmark
    assert main(["--quick", "--out", str(tmp_path), *options]) == 0
    result = json.loads((tmp_path / "read-quick.json").read_text(encoding="utf-8"))
    assert {run["variant"] for run in result["runs"]} == set(VARIANTS)
    assert all(run["mib_s"] > 0 and run["service_peak_mib"] > 0 for run in result["runs"])
    assert result["caches"].startswith("all warm")
    assert [one["pass_number"] for one in result["idle_runs"]] == [1]
    assert {one["variant"] for one in result["less_idle"]} == set(VARIANTS)
    assert result["remote_share"]["bench-proxy-8"] > 0.5
    assert result["remote_share"]["bench-native-8"] > 0.5
    assert result["remote_share"]["bench-direct-8"] == 0
    assert str(Path.home()) not in json.dumps(result)
    assert "proxy/direct" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--variants", "proxy,none"], "none"),
        (["--partitions", "0"], "positive"),
    ],
)
def test_wrong_options_are_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err
