"""AppendInPlace: results that are appended to parameters share memory, with the same values."""

import random
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import TransformError
from relaxpy.relax.transform import AppendInPlace
from tests.fuzz.seed import COUNT, SEED
from tests.ir.relax.texts import graph

STEP = """
def main(q: f32[b, 3, m, 4], x: f32[b, 3, m, 4], past: f32[b, 3, n, 4], other: f32[b, 3, n, 4]):
    k = R.concat((past, R.exp(x)), axis=2)
    v = R.concat((other, x), axis=2)
    weights = R.nn.softmax(R.matmul(q, R.permute_dims(k, (0, 1, 3, 2))))
    y = R.matmul(weights, v)
    return (y, (k, v))
"""


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def append(mod: IRModule) -> IRModule:
    """The module after the pass, which changes it once."""
    after = AppendInPlace()(mod)
    assert after is not mod
    assert AppendInPlace()(after) is after
    return after


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_rows_are_written_after_the_past(target: str) -> None:
    mod = graph(STEP)
    plain, ex = relaxpy.compile(mod, target), relaxpy.compile(append(mod), target)
    past = expected = (floats(2, 3, 5, 4), floats(2, 3, 5, 4, seed=1))
    copies = 0
    for step in range(20):
        q, x = floats(2, 2, 3, 1, 4, seed=step)
        wanted, expected = plain["main"](q, x, *expected)
        found, present = ex["main"](q, x, *past)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        copies += present[0].base is not past[0].base
        past = present
    np.testing.assert_array_equal(past[0], expected[0])
    np.testing.assert_array_equal(past[1], expected[1])
    assert copies == 3  # for 12, 24 and 48 rows
    with pytest.raises(ValueError, match="read-only"):
        past[0][0] = 0
    kernels = {row.kernel for row in ex.report()}
    assert any(name.endswith("first_transpose_matmul_softmax_first_matmul1") for name in kernels)
    assert not any(name.startswith("first") and "matmul" not in name for name in kernels)


def test_results_may_be_passed_more_than_once() -> None:
    ex = relaxpy.compile(append(graph(STEP)))
    one, two = floats(2, 1, 3, 1, 4)
    start = floats(1, 3, 1, 4)
    _, first = ex["main"](one, one, start, start)  # one array for two parameters
    _, left = ex["main"](one, one, *first)
    _, right = ex["main"](two, two, *first)
    _, shorter = ex["main"](two, two, *(x[:, :, :1] for x in right))
    np.testing.assert_array_equal(left[1], np.concatenate([start, one, one], 2))
    np.testing.assert_array_equal(right[1], np.concatenate([start, one, two], 2))
    np.testing.assert_array_equal(shorter[1], np.concatenate([start, two], 2))
    _, fewer = ex["main"](two, two, *(x[:, :, 1:] for x in left))
    np.testing.assert_array_equal(fewer[1], np.concatenate([one, one, two], 2))
    swapped = ex["main"](one, one, first[1], first[0])[1]
    np.testing.assert_array_equal(swapped[0][:, :, :2], first[1])


def test_a_call_that_fails_leaves_the_past_as_it_was() -> None:
    ex = relaxpy.compile(
        append(
            graph("""
    def main(x: f32[1, 4], past: f32[n, 4], i: i64[k]):
        present = R.concat((past, x), axis=0)
        picked = R.match_cast(R.unique(i), i64[1])
        return (picked, present)
    """)
        )
    )
    row, good, bad = floats(1, 4), np.zeros(2, "int64"), np.arange(2)
    _, past = ex["main"](row, floats(3, 4), good)
    with pytest.raises(relaxpy.errors.RuntimeCheckError):
        ex["main"](row + 1, past, bad)
    _, present = ex["main"](row + 2, past, good)
    np.testing.assert_array_equal(present[:4], past)
    np.testing.assert_array_equal(present[4:], row + 2)


@pytest.mark.parametrize(
    "body",
    [
        "y = R.concat((x, past), axis=0)",  # they are not appended
        "y = R.concat((R.exp(past), x), axis=0)",  # nor to what is computed from it
        "y = R.add(R.concat((past, x), axis=0), R.const(1.0))",  # it is not the result
    ],
)
def test_what_is_not_appended_stays(body: str) -> None:
    mod = graph(f"""
    def main(x: f32[2, 4], past: f32[n, 4]):
        {body}
        return y
    """)
    assert AppendInPlace()(mod) is mod
    with pytest.raises(TransformError, match="does not return a concatenation of 'past'"):
        AppendInPlace(params=["past"])(mod)


def random_program(rng: random.Random) -> tuple[IRModule, int, int, int]:
    """A program over some pasts; their number, their axis, and how many rows a call appends."""
    pasts, axis, rows = rng.randrange(1, 4), rng.randrange(3), rng.choice([1, 2])
    shape = ["2", "3", "2"]

    def tensor(size: str) -> str:
        return f"f32[{', '.join([*shape[:axis], size, *shape[axis + 1 :]])}]"

    params = [f"x: {tensor(str(rows))}", *(f"p{k}: {tensor(f'n{k}')}" for k in range(pasts))]
    pool, lines, results = ["x"], [], []
    for k in range(pasts):
        more = ", ".join(rng.choices(pool, k=rng.choice([1, 1, 2])))
        lines += [f"c{k} = R.concat((p{k}, {more}), axis={axis})"]
        for k2 in range(rng.randrange(3)):
            order = rng.choice(["(0, 1, 2)", "(0, 2, 1)", "(2, 0, 1)"])
            used = rng.choice([f"c{k}", f"p{k}", f"c{rng.randrange(k + 1)}"])
            name = f"y{k}{k2}"
            lines += [
                f"{name}a = R.permute_dims({used}, {order})",
                f"{name}b = R.matmul({name}a, R.permute_dims({name}a, (0, 2, 1)))",
                f"{name} = R.sum({name}b, axis=(0, 1, 2))",
            ]
            results.append(name)
            lines += [f"x{k}{k2} = R.add(x, {name})"]
            pool.append(f"x{k}{k2}")
    results += [f"p{rng.randrange(pasts)}", f"c{rng.randrange(pasts)}"]
    rng.shuffle(results)
    presents = ", ".join(f"c{k}" for k in range(pasts))
    text = "\n    ".join([*lines, f"return (({presents},), ({', '.join(results)},))"])
    return graph(f"def main({', '.join(params)}):\n    {text}"), pasts, axis, rows


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_random_programs_keep_their_values(target: str) -> None:
    for number in range(max(3, COUNT // 8)):
        rng = random.Random(f"{SEED} {number}")
        mod, pasts, axis, rows = random_program(rng)
        plain, ex = relaxpy.compile(mod, target), relaxpy.compile(append(mod), target)
        shape = [2, 3, 2]
        shape[axis] = rng.randrange(3)
        #: Pasts of both programs that calls have returned, and what each of them was.
        kept = [([floats(*shape, seed=number)] * pasts,) * 2]
        before = [[x.copy() for x in kept[0][1]]]
        shape[axis] = rows
        for call in range(12):
            wanted, found = kept[max(0, len(kept) - 1 - rng.choice([0, 0, 0, 1, 5]))]
            if rng.random() < 0.2:
                part = (slice(None),) * axis + (slice(rng.randrange(2), None),)
                wanted, found = ([x[part] for x in values] for values in (wanted, found))
            x = floats(*shape, seed=call)
            wanted, expected = plain["main"](x, *wanted)
            found, actual = ex["main"](x, *found)
            for a, b in zip((*found, *actual), (*wanted, *expected), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)
            kept.append((list(wanted), list(found)))
            before.append([x.copy() for x in found])
        for (_, found), copies in zip(kept, before, strict=True):
            for a, b in zip(found, copies, strict=True):
                np.testing.assert_array_equal(a, b)
