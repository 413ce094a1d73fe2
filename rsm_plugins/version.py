"""The version of this software, as GetInfo, `--version` and the metadata of objects tell it."""

from importlib.metadata import PackageNotFoundError, version


def software_version() -> str:
    """Version of the installed distribution, "unknown" in a bare checkout."""
    try:
        return version("kafka-rlm")
    except PackageNotFoundError:
        return "unknown"
