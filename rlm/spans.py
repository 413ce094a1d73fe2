"""What is traced, as a narrow Protocol: spans with names and a few plain attributes.

A Tracer comes from the composition root (`rlm.service.tracing`), and is None while nothing is
traced, which is the default: then a caller does nothing but ask that. Which span another one
belongs to is passed as a text, never by the context of tasks: work goes on in other tasks than it
began in (`rlm.proxy.begun`), and one load serves many reads. Attributes are counts, offsets, ids
and names of topics; never content of records, names of clients or secrets. This module must not
know OpenTelemetry.
"""

from contextlib import AbstractContextManager
from typing import Protocol

Attribute = str | int | bool
SpanReference = str
"""Names a span in all processes, as W3C's traceparent does; empty = none."""
NO_SPAN: SpanReference = ""


class Span(Protocol):
    """One piece of work."""

    @property
    def reference(self) -> SpanReference: ...

    def set(self, **attributes: Attribute) -> None:
        """Add what is known only now. Cheap; never fails."""
        ...


class Tracer(Protocol):
    """Begins spans; never fails and never waits."""

    def span(
        self, name: str, parent: SpanReference = NO_SPAN, **attributes: Attribute
    ) -> AbstractContextManager[Span]:
        """A span that ends with the context, whichever task that ends in. Of an error that passes
        its kind is noted, not its text.
        """
        ...
