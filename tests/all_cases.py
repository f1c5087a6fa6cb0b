"""Run a test for many small cases in one loop, and report every case that fails."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def all_cases(
    names: str | tuple[str, ...],
    cases: Iterable[Any],
    ids: Iterable[Any] | Callable[[Any], Any] | None = None,
) -> Callable:
    """Run a test once for all cases; the arguments are those of `pytest.mark.parametrize`.

    With one test per message, messages would be most of all tests. The loop goes on after a failure, so that
    one failure does not hide the others. All cases share the fixtures of the test.

    Args:
        names: names of the arguments that come from the cases.
        cases: one value per case, or one tuple per case if there are several names.
        ids: names of the cases, or a function of the first value; without `ids`, the values themselves.

    Raises:
        AssertionError: if a case fails; the message lists all of them.
        ValueError: if there are no cases.
    """
    keys = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    rows = [tuple(case) if len(keys) > 1 else (case,) for case in cases]
    if not rows:
        raise ValueError(f"expected cases for {names}, got none")
    labels = [str(ids(row[0])) for row in rows] if callable(ids) else [str(x) for x in ids or rows]

    def decorate(test: Callable) -> Callable:
        @functools.wraps(test)
        def run(*instance: Any, **fixtures: Any) -> None:
            errors = {}
            for label, row in zip(labels, rows, strict=True):
                try:
                    test(*instance, **dict(zip(keys, row, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    errors[label] = error
            if errors:
                lines = [f"[{label}] {type(error).__name__}: {error}" for label, error in errors.items()]
                raise AssertionError(
                    "\n".join([f"{len(errors)} of {len(rows)} cases fail:", *lines])
                ) from next(iter(errors.values()))

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=left)
        return run

    return decorate
