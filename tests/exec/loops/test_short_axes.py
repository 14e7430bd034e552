"""Stores whose innermost axis has few elements, which run in a loop over it."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from relaxpy.exec.machine import tuning
from relaxpy.exec.reference.kernel import run_prim_func
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from tests.exec.loops.support import load, methods
from tests.exec.loops.written import kernel, run_row
from tests.fuzz.seed import COUNT, SEED
from tests.rows import sections

SHORT = sections("""
--- rows of three
def f(A: f32[2, 600], B: f32[2, 1800]):
    for i, j, k in SSS(2, 600, 3):
        B[vi, vj * 3 + vk] = A[vi, vj]
# methods: loop over k, elementwise
# source: for k in range(3):\n        B[:, k:k + 1800:3] = A\n
--- channels last
def f(A: u8[3, n, m], B: f32[n, m, 3]):
    for i, j, k in SSS(n, m, 3):
        B[vi, vj, vk] = T.Cast("float32", A[vk, vi, vj])
# args: n=0, m=5
# args: n=1, m=1
# args: n=2, m=3
# args: n=20, m=30
# methods: loop over k, elementwise
--- several short axes
def f(A: f32[2, 2, 1200], B: f32[1200, 2, 2]):
    for i, j, k in SSS(1200, 2, 2):
        B[vi, vj, vk] = A[vk, vj, vi]
# methods: loop over k, loop over j, elementwise
--- a vector added to rows
def f(A: f32[n, 3], C: f32[3], B: f32[n, 3]):
    for i, j in SS(n, 3):
        B[vi, vj] = A[vi, vj] + C[vj]
# args: n=0
# args: n=1
# args: n=2
# args: n=20
# methods: loop over j, elementwise
--- axes in another order are not read several times
def f(A: f32[50, 60, 3], B: f32[60, 50, 3]):
    for i, j, k in SSS(60, 50, 3):
        B[vi, vj, vk] = A[vj, vi, vk]
# methods: elementwise
""")


@pytest.mark.parametrize("fact", SHORT)
def test_a_short_innermost_axis_is_a_loop(fact: str) -> None:
    run_row(SHORT[fact])


def simple(store: str, n: int, k: int, source: str, target: str) -> PrimFunc:
    """A kernel with a store over n x k elements."""
    return kernel(f"""
def f(A: f32{[*source]}, B: f32{[*target]}):
    for i, j in SS({n}, {k}):
        {store}
""")


@pytest.mark.parametrize(
    ("reason", "store", "n", "k", "source", "target"),
    [
        ("rows are contiguous", "B[vi, vj] = A[vi + 1, vj]", 2000, 3, (2001, 3), (2000, 3)),
        ("the axis is not short", "B[vi, vj] = A[vj, vi]", 2000, 5, (5, 2000), (2000, 5)),
        ("the others are not long", "B[vi, vj] = A[vj, vi]", 20, 3, (3, 20), (20, 3)),
        ("functions prefer vectors", "B[vi, vj] = T.exp(A[vj, vi])", 2000, 3, (3, 2000), (2000, 3)),
        ("it reads what it writes", "B[vi, vj] = B[vi, vj] + A[0, vj]", 2000, 3, (1, 3), (2000, 3)),
        ("it is not innermost", "B[vj, vi] = A[vi, vj]", 2000, 3, (2000, 3), (3, 2000)),
    ],
)
def test_other_stores_run_at_once(reason, store, n, k, source, target) -> None:
    assert methods(simple(store, n, k, source, target)) == ["elementwise"], reason


# ---- random stores

_EXTENTS = ("0", "1", "2", "3", "4", "5", "n", "n", "n")
_DATATYPES = ("float32", "float32", "float64", "int8", "int64", "uint8", "float16", "bfloat16")
_VALUES = (
    *("{0}", "{0}", "{0}", "T.Cast(D, {0})", "{0} + {1}", "{0} * {1}", "T.max({0}, {1})"),
    *("{0} - {0}", "T.abs({0})", "{0} * {1} + {0}", "T.Select(vx == 0, {0}, {1})", "C(1)"),
)


class Draw:
    """A random kernel with one store, and its arguments for a value of n."""

    def __init__(self, random: Random) -> None:
        self.random = random
        names = "xyzw"[: random.randint(1, 4)]
        self.extents = {f"v{v}": random.choice(_EXTENTS) for v in names}
        self.extents[f"v{names[-1]}"] = random.choice(("2", "3", "4", "2", random.choice(_EXTENTS)))
        self.dtypes = {"Sizes": "int8", "Out": random.choice(_DATATYPES)}
        self.shapes = {"Sizes": ["n"]}
        target = self.access("Out", [*self.extents])
        form = random.choice(_VALUES)
        own, other = self.dtypes["Out"], random.choice(_DATATYPES)
        converts = form.startswith("T.Cast")
        operands = []
        for name in ("A", "B"):
            self.dtypes[name] = other if converts else own
            axes = [v for v in self.extents if random.random() < 0.8]
            random.shuffle(axes) if random.random() < 0.2 else None
            in_place = random.random() < 0.06 and not converts
            operands.append(target if in_place else self.access(name, axes))
        value = form.format(*operands).replace("D", f'"{own}"').replace("C(", f"T.{own}(")
        grid = f"for {', '.join(names)} in T.grid({', '.join(self.extents.values())}):"
        if len(names) == 1:
            grid = f"for x in range({self.extents['vx']}):"
        bound = [f"v{v} = T.axis.spatial({self.extents[f'v{v}']}, {v})" for v in names]
        params = ", ".join(f"{n.lower()}: T.handle" for n in self.shapes)
        buffers = [
            f"{n} = T.match_buffer({n.lower()}, [{', '.join(sizes)}], {self.dtypes[n]!r})"
            for n, sizes in self.shapes.items()
        ]
        body = [f"            {line}" for line in (*bound, f"{target} = {value}")]
        head = [f"    {line}" for line in ("n = T.int64()", *buffers, grid)]
        lines = ["@T.prim_func", f"def kernel({params}):", *head]
        self.text = "\n".join([*lines, "        with T.block('Out'):", *body])

    def access(self, name: str, axes: list[str]) -> str:
        """An access over `axes`; its shape is that of the buffer `name`."""
        random, shape, indices = self.random, [], []
        remaining = list(axes)
        if random.random() < 0.15:
            random.shuffle(remaining)
        while remaining:
            var = remaining.pop(0)
            size = self.extents[var]
            index = var
            match random.randrange(12):
                case 0:
                    index, size = f"{var} + 1", f"{size} + 2"
                case 1:
                    index, size = f"{var} * 2", f"{size} * 2"
                case 2:
                    index = f"{size} - 1 - {var}"
                case 3 | 4 | 5 if remaining and self.extents[remaining[0]] != "n":
                    inner = remaining.pop(0)
                    width = self.extents[inner]
                    index, size = f"{var} * {width} + {inner}", f"{size} * {width}"
                case 6:
                    indices.append("1")
                    shape.append("2")
                case _:
                    pass
            indices.append(index)
            shape.append(size)
        self.shapes[name] = shape
        return f"{name}[{', '.join(indices)}]" if indices else f"{name}[()]"

    def arguments(self, n: int) -> Iterator[np.ndarray]:
        """Arrays, some of them strided."""
        numbers = np.random.default_rng(self.random.randrange(1 << 30))
        for name, shape in self.shapes.items():
            sizes = [eval(size, {"n": n}) for size in shape]
            data = numbers.integers(0, 50, sizes).astype(DataType(self.dtypes[name]).numpy())
            match self.random.randrange(4):
                case 0 if sizes:
                    data = np.asfortranarray(data)
                case 1 if sizes:
                    data = data.repeat(2, -1)[..., ::2]
                case _:
                    pass
            yield data


def compare(number: int) -> bool:
    """Compare a random kernel with the reference; whether it has a loop over a short axis."""
    draw = Draw(Random(f"{SEED}/{number}"))
    func = from_source(draw.text)
    assert isinstance(func, PrimFunc)
    compiled = load(func)
    for n in (draw.random.choice((0, 1, 2)), draw.random.choice((3, 7))):
        args = [*draw.arguments(n)]
        same = [(a, b) for a in args for b in args if a is not b and a.dtype == b.dtype]
        if same and draw.random.random() < 0.2:  # an argument in the memory of the target
            args = [
                args[1] if a.shape == args[1].shape and a.dtype == args[1].dtype else a
                for a in args
            ]
        ours, theirs = _copies(args), _copies(args)
        compiled(*ours)
        run_prim_func(func, theirs, "kernel")
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{number}\n{draw.text}")
    return any(m.startswith("loop over") for m in methods(func))


def _copies(args: list[np.ndarray]) -> list[np.ndarray]:
    """Copies of the arrays with their layouts; an array that occurs twice is one copy."""
    copies: dict[int, np.ndarray] = {}
    for a in args:
        wide = a.base if a.base is not None and a.base.ndim == a.ndim else a
        copy = wide.copy(order="K")
        copies.setdefault(id(a), copy if wide is a else copy[..., ::2][..., : a.shape[-1]])
    return [copies[id(a)] for a in args]


def test_random_stores_are_those_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning.NumPy, "LEAST_LONG", 1)
    looped = [compare(number) for number in range(2 * COUNT)]
    assert any(looped)
