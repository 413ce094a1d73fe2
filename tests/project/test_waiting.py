"""What tests with short limits try again, and what they never do."""

import asyncio

import pytest

from tests.waiting import succeeds_once


class Attempts:
    """Each ends with the next of these errors, within a TaskGroup or not, and then all is well."""

    def __init__(self, *errors: Exception, in_group: bool) -> None:
        self.errors = list(errors)
        self.in_group = in_group
        self.made = 0

    async def __call__(self) -> None:
        self.made += 1
        if not self.in_group:
            return self._fail()
        async with asyncio.TaskGroup():
            return self._fail()

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


@pytest.mark.parametrize("in_group", [False, True])
async def test_what_a_stall_breaks_is_tried_again(in_group: bool) -> None:
    attempts = Attempts(AssertionError(), EOFError(), in_group=in_group)
    await succeeds_once(attempts)
    assert attempts.made == 3


@pytest.mark.parametrize("in_group", [False, True])
async def test_a_fault_of_every_attempt_fails_the_test(in_group: bool) -> None:
    attempts = Attempts(*(AssertionError() for _ in range(9)), in_group=in_group)
    with pytest.raises(ExceptionGroup if in_group else AssertionError):
        await succeeds_once(attempts)
    assert attempts.made == 3


@pytest.mark.parametrize("in_group", [False, True])
async def test_another_error_is_not_tried_again(in_group: bool) -> None:
    attempts = Attempts(ValueError(), in_group=in_group)
    with pytest.raises(ExceptionGroup if in_group else ValueError):
        await succeeds_once(attempts)
    assert attempts.made == 1
