"""What holds for every test: the order of the rings, what may be skipped, the sandbox, and how deep
hypothesis digs.
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from rlm.config.environment import variables
from tests.endings import pytest_collection_finish, pytest_runtest_teardown
from tests.rings import pytest_collection_modifyitems
from tests.sandbox_fixtures import kafka_cluster, sandbox, sandbox_factory
from tests.skips import pytest_runtest_makereport
from tests.store_servers import s3_server
from tests.store_servers_hdfs import hdfs_ha_server, hdfs_server

pytest_plugins = ["tests.log_setup", "tests.watchdog"]
__all__ = [
    "hdfs_ha_server",
    "hdfs_server",
    "kafka_cluster",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_makereport",
    "pytest_runtest_teardown",
    "s3_server",
    "sandbox",
    "sandbox_factory",
]

# PySpark forks this process and runs Python before the JVM takes over. gRPC's fork handlers start
# threads in that child where a test before left a channel open, and now and then the child died.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# A setting in the shell's environment would win over the files of the services under test.
for _name in variables():
    os.environ.pop(_name, None)

settings.register_profile(
    "fast",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", deadline=None, max_examples=5_000, print_blob=True)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "fast")
settings.load_profile(_PROFILE)
if _PROFILE == "fast":
    # Hypothesis mixes constants of the modules that happen to be loaded into what it draws. Which
    # ones are loaded depends on the tests that a worker ran before, so "derandomised" examples
    # would differ from run to run (tests/project/test_derandomised.py).
    providers._get_local_constants = Constants
