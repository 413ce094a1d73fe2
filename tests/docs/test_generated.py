"""Documents made from tables equal what the tables say now."""

import pytest

from tests.docs.generated import GENERATED, ROOT


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_generated_documents_are_fresh(name: str) -> None:
    written = (ROOT / name).read_text(encoding="utf-8")
    assert written.rstrip("\n") == GENERATED[name]().rstrip("\n"), (
        "run: python -m tests.docs.generated"
    )
