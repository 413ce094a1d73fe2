"""Cases about what a store reports about itself."""

from kip405.contracts import FindingKind
from rsm_plugins.conformance.checks import check, check_equal
from rsm_plugins.conformance.subject import Subject


async def inspect_tells_how_the_store_is_set_up(subject: Subject) -> None:
    """Values only, each with a word for its state, the same when asked again; what cannot be read
    is said to be unknown rather than left out or raised.
    """
    subject.needs("inspect")
    found = await subject.manager.inspect()
    for finding in found:
        what = finding.kind.value
        check(isinstance(finding.kind, FindingKind), f"{finding.kind!r} is no kind of finding")
        check(bool(finding.state), f"{what} without a state")
        check(finding.days is None or finding.days >= 0, f"{what}: {finding.days} days")
        check(finding.value is None or finding.value >= 0, f"{what}: value {finding.value}")
        shown = [secret for secret in subject.secrets if secret in finding.state]
        check_equal(len(shown), 0, f"secrets shown by {what}")
    again = await subject.manager.inspect()
    check_equal(
        sorted(one.kind.value for one in again),
        sorted(one.kind.value for one in found),
        "kinds of findings when asked again",
    )


CASES = (inspect_tells_how_the_store_is_set_up,)
