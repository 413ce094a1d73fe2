"""Which rows of a list a request of the console asks for, and that page of them. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kip405.errors import Invalid

PAGE_MAX = 200
PAGE_DEFAULT = 50
SEARCH_MAX = 249
"""The longest name of a topic."""
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Row = dict[str, Any]
Order = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which rows of a list: those whose name has `search`, by `sort`, from `start` on."""

    search: str = ""
    sort: str = ""
    start: int = 0
    count: int = PAGE_DEFAULT

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Page":
        """Of a request. Invalid: a value is not what it must be."""
        count = number_of(query, "count", PAGE_DEFAULT)
        if not 1 <= count <= PAGE_MAX:
            raise Invalid(f"count: 1 to {PAGE_MAX}")
        return cls(
            search=query.get("search", "")[:SEARCH_MAX],
            sort=query.get("sort", ""),
            start=number_of(query, "start", 0),
            count=count,
        )


def partition_of(query: Mapping[str, str]) -> int:
    """The partition of a request, 0 where it names none. Invalid: it cannot be one."""
    return number_of(query, "partition", 0, INT32_MAX)


def number_of(query: Mapping[str, str], name: str, default: int, most: int = INT64_MAX) -> int:
    """A number of a request, not negative. Invalid: it is none, or more than `most`."""
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise Invalid(f"{name}: {text[:40]!r} is no number")
    if (found := int(text)) > most:
        raise Invalid(f"{name}: {found} is more than {most}")
    return found


def paged(
    rows: Sequence[Any],
    page: Page,
    orders: Mapping[str, Order | None],
    name: Callable[[Any], str],
    shown: Callable[[Any], Row] = dict,
) -> Row:
    """`count` is that of the rows whose name has what is searched. Invalid: there is no such
    order.
    """
    if page.sort not in orders:
        raise Invalid(f"sort: there are {', '.join(sorted(filter(None, orders)))}")
    if page.search:
        rows = [row for row in rows if page.search in name(row)]
    order = orders[page.sort]
    if order is not None:
        rows = sorted(rows, key=order)
    return {
        "count": len(rows),
        "start": page.start,
        "rows": [shown(row) for row in rows[page.start : page.start + page.count]],
    }
