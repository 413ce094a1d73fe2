"""Thresholds of topics, as the services of tests have them."""

from rlm.plans.offload import OffloadPolicy
from rlmm.settings_records import OffloadThresholds

DEFAULTS = OffloadThresholds(copy_lag_ms=0, copy_lag_bytes=-1, deletion_lag_ms=0)
AT_ONCE = OffloadPolicy(DEFAULTS)
"""Copies wait for nothing, and nothing waits behind them."""
