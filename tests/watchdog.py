"""What a run says that is stopped from outside, and the end of a test that no limit stops.

A failure is printed when it happens. pytest-timeout's limit is one signal to the main thread: a C
library may never see it, and a teardown may hang after it. A minute past it the process prints
where each thread is and ends; xdist says which test that was, and the others finish what they have.
"""

import faulthandler

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

_SLACK_S = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("hang_slack_s", "seconds past a test's limit", default=str(_SLACK_S))


def pytest_configure(config: pytest.Config) -> None:
    """Only in the process that prints; a worker of xdist sends its reports there."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Printer(config), "failures at once")


class _Printer:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(
                f"{report.nodeid}: {report.when} failed after {report.duration:.1f} s"
            )
            terminal.write_line(report.longreprtext)
            terminal.flush()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _watch(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _watch(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    _watch(item)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    faulthandler.cancel_dump_traceback_later()


def _watch(item: pytest.Item) -> None:
    """From now on, in place of what was set before."""
    marker = item.get_closest_marker("timeout")
    limit_s = marker.args[0] if marker else item.config.getoption("timeout")
    limit_s = item.config.getini("timeout") if limit_s is None else limit_s
    if not limit_s:
        return
    seconds = float(limit_s) + float(item.config.getini("hang_slack_s"))
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(seconds, file=stderr, exit=True)
