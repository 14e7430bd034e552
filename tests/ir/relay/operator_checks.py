"""How tests of Relay operators compare them with oracles."""

from __future__ import annotations

from typing import Any

import numpy as np

import relaxpy
from relaxpy import relay
from tests.ir.relay.test_operators import program


def check(call: str, inputs: tuple[np.ndarray, ...], expected: Any, **tolerance: float) -> None:
    """The evaluator, which runs machine code, and the translation to NumPy return the same.

    The text of the program reads back equal.
    """
    module = relay.parse(program(call, inputs))
    functions = [
        relay.create_executor(mod=module).evaluate(),
        relaxpy.compile(relay.to_relax(module), "numpy")["main"],
    ]
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for function in functions:
        result = function(*inputs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        assert len(results) == len(wanted)
        for one, other in zip(results, wanted, strict=True):
            assert np.shape(one) == np.shape(other)
            np.testing.assert_allclose(one, other, **{"rtol": 1e-6, **tolerance})
    assert str(relay.parse(module.astext())) == str(module)
