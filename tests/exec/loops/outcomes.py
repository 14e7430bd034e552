"""Kernels, their arguments, and the outcome of a call: an error or the arguments that change."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.script import from_source
from tests.exec.loops.written import written_out

TARGETS = pytest.mark.parametrize("target", ["native", "numpy", "reference"])


def frozen(array: np.ndarray) -> np.ndarray:
    """The same array, read-only."""
    array.flags.writeable = False
    return array


def kernel(text: str, target: str) -> Callable[..., Any]:
    """The only function of `text`, compiled for `target`."""
    executable = relaxpy.compile(from_source(text), target)
    return executable[executable.function_names[0]]


@dataclass(frozen=True)
class Program:
    """A kernel, its arguments, and its outcome: the error, or the arguments that it changes."""

    name: str
    text: str
    args: Callable[[], list[Any]]
    expected: str | dict[int, Any]


def written(name: str, text: str) -> Program:
    """A short text, which says in comments after it what it is called with, and its outcome.

    `# args: 1, np.zeros((0,), "bool")`, and `# error: PATTERN` or `# result: {1: [True]}`; long
    comments go on in lines that begin with more spaces.
    """
    code, *comments = re.split(r"^# (?=\w+: )", text.replace("\n#   ", " "), flags=re.MULTILINE)
    told = dict(line.strip().split(": ", 1) for line in comments)
    args = told.get("args", "")
    return Program(
        name,
        written_out(code),
        lambda: eval(f"[{args}]"),
        told["error"] if "error" in told else eval(told.get("result", "{}")),
    )


def run(program: Program, target: str) -> None:
    """Run it: the arguments change as expected and in no other way, in case of an error not at all.

    Errors:
        AssertionError: another outcome.
    """
    args = program.args()
    expected = {k: np.array(a) for k, a in enumerate(args)}
    function = kernel(program.text, target)
    if isinstance(program.expected, str):
        with pytest.raises(RuntimeCheckError, match=program.expected) as caught:
            function(*args)
        assert caught.value.diagnostic.span is not None
    else:
        function(*args)
        expected |= program.expected
        for position, array in expected.items():
            np.testing.assert_array_equal(args[position], array)
