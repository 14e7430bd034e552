"""Graph programs as short texts, and what their functions do on every target.

Comments after a program are about its functions, which have their names, and about `N`, a number of
iterations:

    # holds: main(ones(2), 3).tolist() == [3, 3]
    # error: main(ones(5), 3) -> FN-5: parameter x of main
    # do: mine = ones(2)

An error is that of a rule, or of none, `-`, and of the class that belongs to the rule.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import (
    FunctionSignatureError,
    MatchCastError,
    RuntimeCheckError,
    UnknownPackedFuncError,
)
from tests.ir.relax.texts import module
from tests.rows import commented, follow

KINDS = {"FN": FunctionSignatureError, "MC": MatchCastError, "EV": UnknownPackedFuncError}


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, "float32")


def linked(found: tuple[Any, ...]) -> Iterator[Any]:
    """The last fields of pairs whose first fields are such pairs, the outermost first."""
    while found:
        found, last = found
        yield last


def run_row(
    row: str,
    steps: Mapping[str, int],
    given: Callable[[], Mapping[str, Any]] = dict,
    **options: Any,
) -> None:
    """Run a program on the targets of `steps`, which has `N` for each of them.

    It and its comments can use the names that are given for each target.

    Errors:
        AssertionError: a call has another result or error, or the targets have different errors.
    """
    text, comments = commented(row)
    mod = module(text, given())
    errors: dict[str, object] = {}
    for target, count in steps.items():
        names = dict(given())
        executable = relaxpy.compile(mod, target, **options)
        names |= {name: executable[name] for name in executable.function_names}
        names |= {"N": count, "np": np, "ones": ones, "zeros": zeros, "linked": linked}
        for title, said in comments:
            if title != "error":
                try:
                    follow([(title, said)], names)
                except AssertionError as error:
                    error.add_note(f"on {target}")
                    raise
                continue
            call, _, error = said.partition(" -> ")
            rule, _, message = error.partition(": ")
            kind = KINDS.get(rule.partition("-")[0], RuntimeCheckError)
            with pytest.raises(kind, match=message or rule) as caught:
                eval(call, names)
            diagnostic = caught.value.diagnostic
            assert (diagnostic.rule or "-") == rule
            found = type(caught.value), diagnostic.message, diagnostic.span
            assert diagnostic.span is not None
            assert errors.setdefault(said, found) == found
