"""What is shown where there is no terminal: plain lines, now and then, and the table."""

import io

import pytest
from rich.console import Console

from rlm_sandbox.demo.report import Report
from tests.builders.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def report(clock: ManualClock, output: io.StringIO) -> Report:
    return Report(Console(file=output, width=120), clock)


def test_progress_is_a_plain_line_now_and_then(
    report: Report, clock: ManualClock, output: io.StringIO
) -> None:
    with report.step("read") as step:
        for count in range(100):
            step.show(f"{count} of 100 [records]")
            clock.advance(200)
    lines = [line for line in output.getvalue().splitlines() if "..." in line]
    assert lines == [f"  ... read: {count} of 100 [records]" for count in (25, 50, 75)]


def test_the_summary_has_time_and_result_of_each_step(
    report: Report, clock: ManualClock, output: io.StringIO
) -> None:
    with report.step("produce") as step:
        clock.advance(1_500)
        step.result = "7 records"
    with pytest.raises(ValueError, match="broken"), report.step("read"):
        clock.advance(2_000)
        raise ValueError("broken")
    report.summary(verdict="the demo failed", good=False)
    text = output.getvalue()
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if line.count("│") > 2}
    assert "7 records" in rows["produce"]
    assert "1.5" in rows["produce"]
    assert "FAILED" in rows["read"]
    assert "3.5" in rows["all"]
    assert text.rstrip().endswith("the demo failed")
