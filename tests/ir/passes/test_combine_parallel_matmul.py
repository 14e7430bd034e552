"""CombineParallelMatmul: products with one matrix, as TVM combines them, and those that stay."""

from typing import Any

import numpy as np
import pytest

from relaxpy import IRModule, tir
from relaxpy.relax.transform import CombineParallelMatmul
from tests.ir.passes.before_after import agree, check, stays
from tests.ir.relax.texts import graph, module


def program(params: str, lines: str, results: str) -> IRModule:
    """A function of tensors `name:size,size` with one dataflow block; results are its outputs."""
    typed = []
    for param in params.split():
        name, sizes, *dtype = param.split(":")
        typed.append(f"{name}: {dtype[0] if dtype else 'f32'}[{sizes}]")
    body = "\n    ".join(lines.split("; "))
    return graph(f"def main({', '.join(typed)}):\n    {body}\n    return ({results},)")


def numbers(mod: IRModule) -> list[Any]:
    """Whole numbers for the parameters of `main`, so that sums are exact; symbolic sizes are 7."""
    rng = np.random.default_rng(0)
    shapes = [
        tuple(s.value if isinstance(s, tir.IntImm) else 7 for s in p.struct_info.shape.values)
        for p in mod["main"].params
    ]
    return [
        rng.integers(-3, 4, shape).astype(str(p.struct_info.dtype))
        for shape, p in zip(shapes, mod["main"].params, strict=True)
    ]


X = "x:2,6,4 "
W = "a:4,3 b:4,5 c:4,2 "
JOINED = 'w = R.concat((a, b, c), axis=1); m = R.matmul(x, w, out_dtype="float32"); '
SPLIT = "s = R.split({}, [3, 8], axis=2); "


@pytest.mark.parametrize(
    ("params", "before", "after", "results"),
    [
        (
            X + W,
            "p = R.matmul(x, a); q = R.matmul(x, b); r = R.matmul(x, c)",
            JOINED + SPLIT.format("m") + "p = s[0]; q = s[1]; r = s[2]",
            "p, q, r",
        ),
        (  # all have biases, of another dimension before the last one
            X + W + "d:6,3 e:6,5 f:6,2",
            "k = R.matmul(x, a); p = R.add(k, d); l = R.matmul(x, b); q = R.add(e, l); "
            "n = R.matmul(x, c); r = R.add(n, f)",
            JOINED
            + "z = R.concat((d, e, f), axis=1); y = R.add(m, z); "
            + SPLIT.format("y")
            + "p = s[0]; q = s[1]; r = s[2]",
            "p, q, r",
        ),
        (  # all but one have biases
            X + W + "d:3 e:5",
            "k = R.matmul(x, a); p = R.add(k, d); l = R.matmul(x, b); q = R.add(l, e); "
            "r = R.matmul(x, c)",
            JOINED
            + SPLIT.format("m")
            + "k = s[0]; p = R.add(k, d); l = s[1]; q = R.add(l, e); r = s[2]",
            "p, q, r",
        ),
        (  # all have biases and an activation
            X + W + "d:3 e:5 f:2",
            "k = R.matmul(x, a); i = R.add(k, d); p = R.nn.relu(i); "
            "l = R.matmul(x, b); j = R.add(l, e); q = R.nn.relu(j); "
            "n = R.matmul(x, c); h = R.add(n, f); r = R.nn.relu(h)",
            JOINED
            + "z = R.concat((d, e, f), axis=0); y = R.add(m, z); g = R.nn.relu(y); "
            + SPLIT.format("g")
            + "p = s[0]; q = s[1]; r = s[2]",
            "p, q, r",
        ),
        (  # one has another activation
            X + W,
            "k = R.matmul(x, a); p = R.nn.silu(k); l = R.matmul(x, b); q = R.nn.relu(l); "
            "n = R.matmul(x, c); r = R.nn.relu(n)",
            JOINED
            + SPLIT.format("m")
            + "k = s[0]; p = R.nn.silu(k); l = s[1]; q = R.nn.relu(l); n = s[2]; r = R.nn.relu(n)",
            "p, q, r",
        ),
        (  # a product without its bias is a result, too
            X + "a:4,3 b:4,5 d:3 e:5",
            "k = R.matmul(x, a); p = R.add(k, d); q = R.matmul(x, b); r = R.add(q, e)",
            'w = R.concat((a, b), axis=1); m = R.matmul(x, w, out_dtype="float32"); '
            "s = R.split(m, [3], axis=2); k = s[0]; p = R.add(k, d); q = s[1]; r = R.add(q, e)",
            "p, q, r",
        ),
        (  # weights of the same rank together
            "x:6,4 a:2,4,3 b:4,5 c:2,4,2",
            "p = R.matmul(x, a); q = R.matmul(x, b); r = R.matmul(x, c)",
            'w = R.concat((a, c), axis=2); m = R.matmul(x, w, out_dtype="float32"); '
            "s = R.split(m, [3], axis=2); p = s[0]; q = R.matmul(x, b); r = s[1]",
            "p, q, r",
        ),
        (  # a vector has one axis, and so has its product
            "x:4 a:4,3 b:4,5",
            "p = R.matmul(x, a); q = R.matmul(x, b)",
            'w = R.concat((a, b), axis=1); m = R.matmul(x, w, out_dtype="float32"); '
            "s = R.split(m, [3], axis=0); p = s[0]; q = s[1]",
            "p, q",
        ),
        (  # two matrices, one whose products have biases
            X + "y:2,6,4 a:4,3 b:4,5 c:4,2 d:2 e:3",
            "p = R.matmul(x, a); k = R.matmul(y, c); q = R.matmul(x, b); r = R.add(k, d); "
            "l = R.matmul(y, a); t = R.add(l, e)",
            'w = R.concat((a, b), axis=1); m = R.matmul(x, w, out_dtype="float32"); '
            "s = R.split(m, [3], axis=2); p = s[0]; q = s[1]; "
            'w1 = R.concat((c, a), axis=1); m1 = R.matmul(y, w1, out_dtype="float32"); '
            "z1 = R.concat((d, e), axis=0); y1 = R.add(m1, z1); "
            "s1 = R.split(y1, [2], axis=2); r = s1[0]; t = s1[1]",
            "p, q, r, t",
        ),
        (  # a weight is computed after the first product was used
            X + "a:4,3 b:5,4",
            "k = R.matmul(x, a); p = R.exp(k); u = R.permute_dims(b); q = R.matmul(x, u)",
            "u = R.permute_dims(b); w = R.concat((a, u), axis=1); "
            'm = R.matmul(x, w, out_dtype="float32"); s = R.split(m, [3], axis=2); '
            "k = s[0]; p = R.exp(k); q = s[1]",
            "p, q",
        ),
    ],
)
def test_products_are_combined(params: str, before: str, after: str, results: str) -> None:
    mod = program(params, before, results)
    check(CombineParallelMatmul(), mod, program(params, after, results))
    found = CombineParallelMatmul()(mod)
    assert CombineParallelMatmul()(found) is found
    if "exp" not in before and "silu" not in before:
        agree(mod, found, *numbers(mod))


def test_one_symbolic_width_is_combined_and_is_the_last() -> None:
    mod = program(
        X + "a:4,k b:4,5 c:4,l",
        "p = R.matmul(x, a); q = R.matmul(x, b); r = R.matmul(x, c)",
        "p, q, r",
    )
    found = CombineParallelMatmul()(mod)
    assert "R.concat((b, a), axis=1)" in found.script()
    assert found.script().count("R.matmul") == 2
    assert found["main"].struct_info == mod["main"].struct_info
    agree(mod, found, *numbers(mod))


@pytest.mark.parametrize(
    ("params", "lines", "results"),
    [
        (X + "a:4,3", "p = R.matmul(x, a)", "p"),
        ("x:6,4 a:2,4,3 b:3,4,3", "p = R.matmul(x, a); q = R.matmul(x, b)", "p, q"),
        (X + "a:4,k b:4,l", "p = R.matmul(x, a); q = R.matmul(x, b)", "p, q"),
        (X + "a:4 b:4", "p = R.matmul(x, a); q = R.matmul(x, b)", "p, q"),
        (  # results of different datatypes
            "x:2,4:f16 a:4,3:f16 b:4,5:f16",
            'p = R.matmul(x, a, out_dtype="float32"); q = R.matmul(x, b)',
            "p, q",
        ),
        (  # biases that broadcast in different ways
            "x:2,4 a:4,3 b:4,5 d:1,3 e:2,5",
            "k = R.matmul(x, a); p = R.add(k, d); l = R.matmul(x, b); q = R.add(l, e)",
            "p, q",
        ),
        (  # a bias that broadcasts along the last axis
            "x:2,4 a:4,3 b:4,5 d:3 e:1",
            "k = R.matmul(x, a); p = R.add(k, d); l = R.matmul(x, b); q = R.add(l, e)",
            "p, q",
        ),
        (  # the second weight depends on the first product
            "x:4,4 a:4,4",
            "p = R.matmul(x, a); b = R.exp(p); q = R.matmul(x, b)",
            "q",
        ),
        (  # each pair of products needs one of the other
            "x:4,4 y:4,4 a:4,4 b:4,4",
            "p = R.matmul(x, a); q = R.matmul(y, p); r = R.matmul(y, b); t = R.matmul(x, r)",
            "q, t",
        ),
    ],
)
def test_products_that_cannot_be_combined_stay(params: str, lines: str, results: str) -> None:
    stays(CombineParallelMatmul(), program(params, lines, results))


def test_a_sum_of_two_products_is_not_the_addition_of_a_bias() -> None:
    params = "x:2,4 a:4,3 b:4,3"
    before = "p = R.matmul(x, a); q = R.matmul(x, b); r = R.add(p, q)"
    after = (
        'w = R.concat((a, b), axis=1); m = R.matmul(x, w, out_dtype="float32"); '
        "s = R.split(m, [3], axis=1); p = s[0]; q = s[1]; r = R.add(p, q)"
    )
    check(CombineParallelMatmul(), program(params, before, "r"), program(params, after, "r"))


def test_a_function_decides_which_products_are_combined() -> None:
    params = "x:2,4 y:2,4 a:4,3 b:4,3 c:4,3 d:3 e:3 f:3"
    lines = (
        "k = R.matmul(x, a); p = R.add(k, d); l = R.matmul(x, b); q = R.add(l, e); "
        "n = R.matmul(x, c); r = R.add(n, f); g = R.matmul(y, a); h = R.matmul(y, b)"
    )
    mod = program(params, lines, "p, q, r, g, h")
    seen = []

    def wanted(left: Any, weights: Any, biases: Any, bindings: Any) -> bool:
        names = [left.name_hint, [w.name_hint for w in weights], [b.name_hint for b in biases]]
        seen.append((*names, len(bindings)))
        return len(weights) > 2

    text = CombineParallelMatmul(wanted)(mod).script()
    assert seen == [("x", ["a", "b", "c"], ["d", "e", "f"], 8), ("y", ["a", "b"], [], 8)]
    assert text.count("R.matmul(y") == 2
    assert text.count("R.matmul(x") == 1


@pytest.mark.rule("OPT-3")
def test_products_of_two_blocks_stay() -> None:
    Mod = module("""
    @impure
    def main(x: f32[2, 4], a: f32[4, 3]) -> R.Tuple(f32[2, 3], f32[2, 3]):
        with R.dataflow():
            p = R.matmul(x, a)
        _ = R.print(p, format="{}")
        with R.dataflow():
            q = R.matmul(x, a)
        return (p, q)
    """)
    stays(CombineParallelMatmul(), Mod)
