"""What is shown where there is no terminal: plain lines, now and then, and the table."""

import io

import pytest
from rich.console import Console

from rlm.demo.report import Report
from tests.builders.clock import FakeClock
