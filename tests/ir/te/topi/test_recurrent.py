"""Long short-term memories compute what their equations say."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import te, topi
from relaxpy.errors import MisuseError

LENGTH, BATCH, INPUTS, HIDDEN, PROJECTED = 4, 2, 3, 5, 2
Array = np.ndarray[Any, Any]


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def remembered(x: dict[str, Array], reverse: bool, layout: str) -> tuple[Array, Array]:
    """The equations of the memory in float64, one position after the other."""
    zero = np.zeros((BATCH, HIDDEN))
    x = {name: array.astype("float64") for name, array in x.items()}
    c, h = x.get("c_init", zero), x.get("h_init", zero)
    found = np.zeros((LENGTH, *h.shape)), np.zeros((LENGTH, *c.shape))
    for step in range(LENGTH):
        z = x["Xs"][LENGTH - 1 - step if reverse else step] @ x["Wi"].T + h @ x["Wh"].T
        z = z + x.get("Bi", 0) + x.get("Bh", 0)
        gates = dict(zip(layout, np.split(z, 4, 1), strict=True))
        i, f = (logistic(gates[g] + x.get(f"p_{g.lower()}", 0) * c) for g in "IF")
        c = f * c + i * np.tanh(gates["G"])
        h = logistic(gates["O"] + x.get("p_o", 0) * c) * np.tanh(c)
        h = h @ x["proj"].T if "proj" in x else h
        found[0][step], found[1][step] = h, c
    return found


@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize("has_all", [False, True])
@pytest.mark.parametrize(("reverse", "layout"), [(False, "IFGO"), (True, "OGIF")])
def test_a_memory(has_all: bool, reverse: bool, layout: str, target: str) -> None:
    width, rows = PROJECTED if has_all else HIDDEN, 4 * HIDDEN
    shapes = {"Xs": (LENGTH, BATCH, INPUTS), "Wi": (rows, INPUTS), "Wh": (rows, width)}
    if has_all:
        shapes |= {"Bi": (rows,), "Bh": (rows,), "proj": (PROJECTED, HIDDEN)}
        shapes |= {"h_init": (BATCH, PROJECTED)}
        shapes |= dict.fromkeys(("c_init", "p_i", "p_f", "p_o"), (BATCH, HIDDEN))
    random = np.random.default_rng(0)
    arrays = {name: random.standard_normal(s).astype("float32") for name, s in shapes.items()}
    tensors = {name: te.placeholder(s, "float32", name) for name, s in shapes.items()}
    states = topi.nn.lstm(**tensors, reverse=reverse, weight_layout=layout)
    kernel = te.create_prim_func([*tensors.values(), *states])
    expected = remembered(arrays, reverse, layout)
    found = [np.zeros(e.shape, "float32") for e in expected]
    run = relaxpy.compile(relaxpy.IRModule({"main": kernel}), target=target)["main"]
    run(*arrays.values(), *found)
    for actual, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, e, rtol=1e-5, atol=1e-6)


def test_what_is_no_memory_is_refused() -> None:
    xs, wi, wh = (te.placeholder(s, "float32") for s in ((4, 2, 3), (20, 3), (20, 5)))
    with pytest.raises(MisuseError, match="orders the gates IFGO, found 'IFGG'"):
        topi.nn.lstm(xs, wi, wh, weight_layout="IFGG")
    with pytest.raises(MisuseError, match=r"ranks 3, 2 and 2, found shapes \(20, 3\)"):
        topi.nn.lstm(wi, wi, wh)
    with pytest.raises(MisuseError, match="4 rows for each hidden unit, found 21 rows"):
        topi.nn.lstm(xs, te.placeholder((21, 3), "float32"), wh)
