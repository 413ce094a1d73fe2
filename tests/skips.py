"""A test is skipped only for a reason of this list; any other skip is a failure of that test (H33).

Otherwise a machine on which nothing runs any more would pass.
"""

from collections.abc import Generator

import pytest

REASONS = (
    "no container engine answers",
    "no compiler here",
    "mallopt is glibc's",
    "reads /proc",
    "there is no /proc",
    "there is no IPv6",
    "there is no git",
    "there is no kustomize and no kubectl",
    "there are no namespaces of Linux to run pods in",
    "there are no mount namespaces",
    "there is no promtool",
    "needs a device that is always full",
    "bash is older than 4.4",
    "there is no systemd-analyze",
    "pip cannot get ",
    "uv cannot get ",
    "npm cannot get ",
    "there is no Node.js to run the reader with",
    "there is no Node.js to run the console's scripts with",
    "there is no Chromium with its driver",
    "there is no npm to run the reader with",
    "there is no Go to build the reader with",
    "Go cannot build the reader",
    "the jars of Spark's Kafka source cannot be had",
    "the schemas of Strimzi cannot be had",
    "jars cannot be had for ",
    "RLM_ONE_SANDBOX is not one for",
)
"""How each reason begins: what a machine may lack, and nothing that a change can cause."""

_PREFIX = "Skipped: "


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip for another reason into a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = _reason(report)
        if not reason.startswith(REASONS):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: skipped, but not listed in {__name__}: {reason}"
    return report


def _reason(report: pytest.TestReport) -> str:
    """What was given to `skip` or `skipif`."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix(_PREFIX)
