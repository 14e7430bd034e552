"""Formats of `print` and `assert_op` are data: they place texts, and reach nothing else."""

import time
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import AssertionFailedError, RuntimeCheckError
from tests.ir.relax.texts import module

X = np.array(2.0, "float32")
RIGHT = ["", "{}", "{0} {0!r}", "x = {:>8}|", "{{}} {:*^999}", "{:.1}", "{0:5s} {0:<05}"]
WRONG = [
    *("{0.__class__}", "{0.__class__.__mro__}", "{0[0]}", "{x}", "{0.x:3}", "{!r.x}", "{", "}"),
    *("{:1000000000}", "{:1001}", "{:.99999999999}", "{:>{0}}", "{:{0.x}}", "{:d}", "{:=3}"),
    *("{1}", "{0} {}", "{} {}", "{:,}", "{-1}", "{0:" + "9" * 5000 + "}"),
]
TARGETS = ["native", "numpy", "reference"]


def compiled(operator: str, format: str, target: str) -> Any:
    arguments = "x" if operator == "print" else "R.const(False), x"
    mod = module(f"""
    @impure
    def main(x: f32):
        _ = R.{operator}({arguments}, format={format!r})
        return x
    """)
    return relaxpy.compile(mod, target)["main"]


@pytest.mark.parametrize("format", RIGHT)
@pytest.mark.parametrize("target", TARGETS)
def test_formats_place_texts(format: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = format.format("2.0") if format else "2.0"
    compiled("print", format, target)(X)
    assert capsys.readouterr().out == f"{expected}\n"
    with pytest.raises(AssertionFailedError) as caught:
        compiled("assert_op", format, target)(X)
    assert f"Assertion Failed: {expected[:50]}" in str(caught.value)


@pytest.mark.parametrize("format", WRONG)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operator", ["print", "assert_op"])
def test_formats_that_reach_further_are_refused(format: str, target: str, operator: str) -> None:
    main = compiled(operator, format, target)
    began = time.monotonic()
    with pytest.raises(RuntimeCheckError, match="does not match its 1 value") as caught:
        main(X)
    assert not isinstance(caught.value, AssertionFailedError)
    assert time.monotonic() - began < 1
