"""The order of the rings of tests.

Unit tests come first, on as many workers as there are. Integration tests follow in groups: those of
one group run one by one on one worker and share its processes, because each brings real servers up
on a small machine; a few groups run side by side. Tests that share no servers come last, file by
file: they keep every worker busy until the end.
"""

import pytest

ONE, WORKERS, STORES, SECURED, SPARK, THREE, BROKER = SHARED = (
    "one broker",
    "one broker with proxy workers",
    "stores",
    "secured clusters",
    "spark",
    "three brokers",
    "a broker alone",
)
"""The longest first: then no worker is left with a long one while the others have nothing to do."""

_FOLDERS = {"containers": STORES, "rsm_plugins": STORES, "spark": SPARK}
_FIXTURES = {
    "hdfs_ha_server": STORES,
    "hdfs_server": STORES,
    "s3_server": STORES,
    "secured_sandbox": SECURED,
    "three_brokers": THREE,
}
_OF_ONE_BROKER = {"one_broker": ONE, "sandbox": ONE, "kafka_cluster": BROKER}
_LOCAL = "local"
_OF_KINDS = {"workers": WORKERS, "s3": STORES, "hdfs": STORES}
"""By the parameter of `one_broker`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move integration tests behind the others and bind each group to one worker, before xdist
    looks.
    """
    for item in items:
        if item.get_closest_marker("integration") is not None:
            item.add_marker(pytest.mark.xdist_group(f"integration: {group_of(item)}"))
    items.sort(key=_group_order)


def _group_order(item: pytest.Item) -> int:
    if item.get_closest_marker("integration") is None:
        return -1
    group = group_of(item)
    return SHARED.index(group) if group in SHARED else len(SHARED)


def group_of(item: pytest.Item) -> str:
    """By what takes long to bring up: Spark, three brokers, servers of stores, a broker that other
    tests use too; else its file.
    """
    callspec = getattr(item, "callspec", None)
    kind = callspec.params.get("one_broker", _LOCAL) if callspec is not None else _LOCAL
    if kind in _OF_KINDS:
        return _OF_KINDS[kind]
    names = getattr(item, "fixturenames", ())
    for fixture in names:
        if fixture in _FIXTURES:
            return _FIXTURES[fixture]
    for folder, group in _FOLDERS.items():
        if folder in item.path.parent.parts:
            return group
    found = (group for fixture, group in _OF_ONE_BROKER.items() if fixture in names)
    return next(found, item.nodeid.partition("::")[0])
