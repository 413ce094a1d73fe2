"""All checks in the order in which they are made and shown, and their page. Pure."""

from rlm.diagnosis import disks, host, listeners, readers, services, stores, topics

CHECKS = (
    *disks.CHECKS,
    *listeners.CHECKS,
    *services.CHECKS,
    *topics.CHECKS,
    *stores.CHECKS,
    *readers.CHECKS,
    *host.CHECKS,
)


def generate_docs() -> str:
    """The whole text of docs/reference/checks.md."""
    head = (
        "# Checks of `rlm doctor`\n\n"
        "`rlm doctor --config FILE` makes them in this order. What could not be asked is named, "
        "and is never sound. Made from `rlm/diagnosis/table.py`; edit the modules beside it.\n\n"
        "| check | question | what mends it |\n|---|---|---|\n"
    )
    return head + "".join(f"| `{one.name}` | {one.asks} | {one.remedy} |\n" for one in CHECKS)
