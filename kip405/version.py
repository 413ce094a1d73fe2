"""The version of this software, as `--version`, GetInfo, heartbeats and objects show it."""

from importlib.metadata import PackageNotFoundError, version


def software_version() -> str:
    """Version of the installed distribution; `0+unknown` when run from a bare tree."""
    try:
        return version("kafka-rlm")
    except PackageNotFoundError:
        return "0+unknown"


def software_name() -> str:
    """What manifests record: `kafka-rlm <version>`."""
    return f"kafka-rlm {software_version()}"
