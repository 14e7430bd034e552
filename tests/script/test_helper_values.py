"""What plain Python helpers compute: values, computed once, where they are made, in order."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import relaxpy
from relaxpy import relax
from relaxpy.errors import StructInfoError, WellFormedError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.analysis import well_formed
from relaxpy.script import from_source, ir as I, relax as R, tir as T

VECTOR = R.Tensor((4,), "float32")


def values(func: relax.Function) -> list[relax.Expr]:
    """The values that a function without branches binds, in order."""
    assert well_formed(func)
    assert_structural_equal(from_source(func.script()), func)
    return [b.value for block in func.body.blocks for b in block.bindings]


def operators(func: relax.Function) -> list[str]:
    """The operators that a function without branches calls, in order."""
    found = []
    for value in values(func):
        if isinstance(value, relax.Call):
            op = value.op
            found.append(op.global_symbol if isinstance(op, relax.ExternFunc) else op.name[6:])
        else:
            found.append(type(value).__name__)
    return found


def noisy(x: relax.Expr) -> relax.Expr:
    R.print(x)
    return x + 1.0


def drawn(x: relax.Expr) -> relax.Expr:
    return R.call_packed("draw", x, sinfo_args=VECTOR)


def zero(x: relax.Expr) -> relax.Expr:
    h = drawn(x)
    return h - h


def test_effects_of_a_helper_happen_once_and_in_order() -> None:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        y = noisy(x)
        z = zero(y) + noisy(drawn(y))
        return z

    assert operators(main) == ["print", "add", "draw", "subtract", "draw", "print", "add", "add"]


def test_what_runs_is_what_a_python_programmer_expects() -> None:
    seen: list[float] = []

    @relaxpy.register_func("tests.helpers.draw", override=True)
    def draw(x: np.ndarray) -> np.ndarray:
        seen.append(float(x[0]))
        return x + np.float32(len(seen))

    def read(x: relax.Expr) -> relax.Expr:
        return R.call_packed("tests.helpers.draw", x, sinfo_args=VECTOR)

    def both(x: relax.Expr) -> dict[str, relax.Expr]:
        first = read(x)
        second = read(first)
        read(x)
        return {"second": second, "first": first}

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        found = both(x)
        return found["second"] - found["first"], found["first"]

    difference, first = main(np.zeros(4, "float32"))
    assert seen == [0, 1, 0]
    assert difference.tolist() == [2] * 4
    assert first.tolist() == [1] * 4


def pair(x: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    h = R.exp(x)
    return h + 1.0, h * 2.0


def attention(x: relax.Expr) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    q, k, v = (R.matmul(x, x) for _ in range(3))
    return R.matmul(R.nn.softmax(R.matmul(q, k)), v), k, v


def test_layers_that_pass_their_keys_on_have_their_projections_once() -> None:
    layers = 12

    @R.function
    def main(x: R.Tensor((8, 8), "float32")):
        for _ in range(layers):
            x, k, v = attention(x)
        return (x, k, v)

    found = operators(main)
    assert found.count("matmul") == 5 * layers
    assert len(found) == 6 * layers


@pytest.mark.parametrize("layers", [20, 40, 80])
def test_unpacking_chained_results_takes_a_binding_each(layers: int) -> None:
    def layer(x: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
        a, b = R.split(x, 2, axis=1)
        return R.concat([b, a], axis=1), a

    @R.function
    def main(x: R.Tensor((8, 8), "float32")):
        for _ in range(layers):
            x, a = layer(x)
        return (x, a)

    assert len(values(main)) == 4 * layers


def test_what_only_effects_are_for_is_bound_where_it_happens() -> None:
    def watch(x: relax.Expr) -> None:
        R.print(x)
        R.call_packed("log", x, sinfo_args=R.Tuple())

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        watch(x)
        y = R.exp(x)
        if c:
            watch(y)
            z = noisy(y)
        else:
            z = y
        watch(z)
        return z

    values(main)
    [branch] = [b.value for b in main.body.blocks[0].bindings if isinstance(b.value, relax.If)]
    inside = branch.true_branch.blocks[0].bindings
    assert [getattr(b.value.op, "name", "packed") for b in inside] == [
        "relax.print",
        "packed",
        "relax.print",
        "relax.add",
    ]
    assert len(main.body.blocks[0].bindings) == 6


class Scale:
    """An object of Python's with methods, properties and operators."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.history: list[relax.Expr] = []

    def __call__(self, x: relax.Expr) -> relax.Expr:
        self.history.append(x * self.factor)
        return self.history[-1]

    def __matmul__(self, x: relax.Expr) -> relax.Expr:
        return self(R.abs(x))

    def __getitem__(self, index: int) -> relax.Expr:
        return R.negative(self.history[index])

    @property
    def last(self) -> relax.Expr:
        return R.exp(self.history[-1])


def test_objects_that_keep_values() -> None:
    scale = Scale(3.0)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        a = scale(x)
        b = scale @ a
        c = scale[0] + scale.last
        return (a, b, c, R.add(scale.history[0], scale.history[1]))

    assert operators(main) == ["multiply", "abs", "multiply", "negative", "exp", "add", "add"]


@dataclass
class State:
    hidden: relax.Expr
    gates: dict[str, list[relax.Expr]]


def test_dataclasses_dicts_and_lists_of_values() -> None:
    def step(x: relax.Expr) -> State:
        h = R.tanh(x)
        return State(h, {"f": [R.sigmoid(h), R.sigmoid(x)]})

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        state = step(x)
        y = state.hidden * state.gates["f"][1]
        z = state.hidden * state.gates["f"][0]
        return (y, z)

    assert operators(main) == ["tanh", "sigmoid", "sigmoid", "multiply", "multiply"]


def test_containers_of_the_text_itself_hold_values() -> None:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        table = {"h": R.call_packed("draw", x, sinfo_args=R.Tensor((4,), "float32")), "e": R.exp(x)}
        y = table["h"] - table["h"]
        z = (lambda v: v * v)(R.abs(table["e"]))
        return (y, z)

    assert operators(main) == ["draw", "exp", "subtract", "abs", "multiply"]


@R.macro
def square(v):
    w = v * v
    return w + v


def test_arguments_of_macros_are_values() -> None:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        y = square(R.call_packed("draw", x, sinfo_args=R.Tensor((4,), "float32")))
        return y

    assert operators(main) == ["draw", "multiply", "add"]


def flattened(x):
    rows, columns = x.shape
    y = R.reshape(x * x, (rows * columns,)) if x.ndim == 2 and x.dtype == "float32" else x
    return R.reshape(y, (2, x.shape[-1], rows // 2)) if columns == 3 else y


def test_a_helper_reads_what_is_known_of_a_tensor_as_the_text_does() -> None:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")):
        return flattened(x), R.reshape(x, x.shape)

    @R.function
    def written(x: R.Tensor(("n", 3), "float32")):
        n = T.int64()
        y = R.reshape(x * x, (n * 3,))
        return R.reshape(y, (2, 3, n // 2)), R.reshape(x, (n, 3))

    assert_structural_equal(main.with_attr("global_symbol", "written"), written)
    array = np.arange(6, dtype="float32").reshape(2, 3)
    for target in ("numpy", "reference"):
        found, same = relaxpy.compile(main, target)["main"](array)
        assert found.tolist() == (array * array).reshape(2, 3, 1).tolist()
        assert same.tolist() == array.tolist()


def test_a_helper_reads_what_is_not_known_of_a_tensor_as_the_program_runs() -> None:
    def size(x):
        return x.shape[0]

    @R.function
    def main(x: R.Tensor(ndim=2)):
        return size(x)

    assert operators(main) == ["inspect.tensor_shape_i"]
    assert isinstance(size(relax.Var("x", VECTOR)), relax.Call)


class Pair(NamedTuple):
    first: relax.Expr
    second: relax.Expr


def test_a_named_tuple_keeps_the_names_of_its_fields() -> None:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        both = Pair(x, x + 1.0)
        total = both.first + both.second
        return total, both

    total, both = main(np.zeros(4, "float32"))
    assert total.tolist() == both[1].tolist() == [1] * 4


def test_generators_run_as_far_as_they_are_asked() -> None:
    def steps(x: relax.Expr) -> Iterator[relax.Expr]:
        for _ in itertools.count():
            R.print(x)
            x = R.match_cast(x + 1.0, R.Tensor((4,), "float32"))
            yield x

    def first(x: relax.Expr, count: int) -> Iterator[relax.Expr]:
        return itertools.islice(steps(x), count)

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        for y in first(x, 2):
            x = x * y
        a, b = first(x, 2)
        return a + b

    step = ["print", "add", "Var"]
    assert operators(main) == [*step, "multiply", *step, "multiply", *step, *step, "add"]


def test_functions_that_take_functions() -> None:
    def twice(function: Callable[[relax.Expr], relax.Expr]) -> Callable[..., relax.Expr]:
        @functools.wraps(function)
        def both(x: relax.Expr, *rest: relax.Expr, scale: float = 2.0) -> relax.Expr:
            return functools.reduce(R.add, rest, function(function(x))) * scale

        return both

    @twice
    def helper(x: relax.Expr) -> relax.Expr:
        return R.exp(x) if R.exp is not None else R.abs(x)

    def power(x: relax.Expr, n: int) -> relax.Expr:
        return x if n == 0 else power(x, n - 1) * x

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = helper(x, R.abs(x), x, scale=3.0)
        z = helper(*[y, x])
        return power(z, 2) if z.ndim == 1 else helper(z)

    assert operators(main) == (
        [
            "abs",
            "exp",
            "exp",
            "add",
            "add",
            "multiply",
            "exp",
            "exp",
            "add",
            "multiply",
            "multiply",
            "multiply",
        ]
    )


def test_other_functions_are_built_and_run_meanwhile() -> None:
    def identity(x: relax.Expr) -> relax.Expr:
        v = relax.Var("v", VECTOR)
        builder = relax.BlockBuilder()
        with builder.function("other", [v]):
            h = builder.emit(relax.op.add(relax.op.exp(v), relax.op.zeros((4,), "float32")))
            builder.emit_func_output(h)
        assert well_formed(builder.get())
        relax.transform.LegalizeOps()(builder.get())

        @R.function
        def another(y: R.Tensor((4,), "float32")):
            return noisy_less(y) + y

        assert another(np.ones(4, "float32")).tolist() == [3] * 4
        return x * 1.0

    def noisy_less(x: relax.Expr) -> relax.Expr:
        return x + 1.0

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = identity(R.exp(x))
        return y

    assert operators(main) == ["exp", "multiply"]


def test_a_value_that_is_annotated_or_cast_keeps_what_is_known_of_it() -> None:
    kept: list[relax.Expr] = []

    def helper(x: relax.Expr) -> relax.Expr:
        kept.append(R.exp(x))
        return kept[-1]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y: R.Object = helper(x)
        R.match_cast(helper(x), R.Tensor((4,), "float32"))
        return (y, kept[0] + kept[1])

    assert operators(main) == ["exp", "Var", "exp", "Var", "add"]


def test_an_effect_in_a_dataflow_block_is_refused_where_the_helper_is_called() -> None:
    with pytest.raises(StructInfoError) as caught:

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                y = R.exp(x)
                z = noisy(y)
                R.output(z)
            return z

    [diagnostic] = caught.value.diagnostics
    assert diagnostic.rule == "PU-5"
    assert diagnostic.span.source.line(diagnostic.span.line).strip() == "z = noisy(y)"


def test_the_result_of_an_effect_stays_in_its_branch() -> None:
    kept: list[relax.Expr] = []

    def helper(x: relax.Expr) -> relax.Expr:
        kept.append(drawn(x))
        return kept[-1]

    with pytest.raises(WellFormedError, match="not visible here"):

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            if c:  # noqa: SIM108
                y = helper(x)
            else:
                y = x
            return y + kept[0]


def test_constants_of_the_module_level_are_values_of_each_function() -> None:
    bias = R.zeros((4,), "float32")

    @I.ir_module
    class Module:
        @R.function
        def first(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            if c:  # noqa: SIM108
                y = x + bias
            else:
                y = bias + x
            return y + bias

        @R.function
        def second(x: R.Tensor((4,), "float32")):
            return x + bias * bias

    assert well_formed(Module)
    assert operators(Module["second"]) == ["zeros", "multiply", "add"]


# --- programs written inline and through helpers


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Steps: what is done to which two of the values so far."""
    kinds = ["add", "exp", "draw", "print", "split", "pair", "cast"]
    count = draw(st.integers(1, 8))
    place = st.integers(0, 30)
    return [(draw(st.sampled_from(kinds)), draw(place), draw(place)) for _ in range(count)]


def run(program: list[tuple[str, int, int]], start: relax.Expr) -> list[relax.Expr]:
    """The program as a helper, which leaves out no style of Python's."""
    found = [start]

    def pick(index: int) -> relax.Expr:
        return found[index % len(found)]

    for kind, a, b in program:
        match kind:
            case "add":
                found.append(pick(a) + pick(b))
            case "exp":
                found += [f(pick(a)) for f in (R.exp, R.abs) if b % 2 or f is R.exp]
            case "draw":
                found.append(drawn(pick(a)))
            case "print":
                R.print(pick(a))
            case "split":
                low, high = R.split(pick(a), 2)
                found.append(R.concat([high, low], axis=0))
            case "pair":
                found += {"two": pair(pick(a))}["two"] if b % 3 else (pick(b),)
            case "cast":
                found.append(R.match_cast(pick(a), R.Tensor((4,), "float32")))
    return found


def written(program: list[tuple[str, int, int]]) -> str:
    """The program as a text with a line for each step."""
    found, lines = ["x"], []
    names = (f"v{k}" for k in itertools.count())

    def pick(index: int) -> str:
        return found[index % len(found)]

    def bind(value: str) -> str:
        lines.append(f"{(name := next(names))} = {value}")
        return name

    for kind, a, b in program:
        match kind:
            case "add":
                found.append(bind(f"{pick(a)} + {pick(b)}"))
            case "exp":
                place = pick(a)
                found.append(bind(f"R.exp({place})"))
                if b % 2:
                    found.append(bind(f"R.abs({place})"))
            case "draw":
                vector = 'R.Tensor((4,), "float32")'
                found.append(bind(f'R.call_packed("draw", {pick(a)}, sinfo_args={vector})'))
            case "print":
                lines.append(f"R.print({pick(a)})")
            case "split":
                parts = bind(f"R.split({pick(a)}, 2)")
                low, high = bind(f"{parts}[0]"), bind(f"{parts}[1]")
                found.append(bind(f"R.concat([{high}, {low}], axis=0)"))
            case "pair" if b % 3:
                h = bind(f"R.exp({pick(a)})")
                found += [bind(f"{h} + 1.0"), bind(f"{h} * 2.0")]
            case "pair":
                found.append(pick(b))
            case "cast":
                found.append(bind(f'R.match_cast({pick(a)}, R.Tensor((4,), "float32"))'))
    body = "\n    ".join([*lines, f"return ({', '.join(found)},)"])
    head = 'def main(x: R.Tensor((4,), "float32")):'
    return f"@R.function(pure=False)\n{head}\n    {body}\n"


@given(programs())
@settings(deadline=None, max_examples=150)
def test_a_helper_is_the_same_as_its_statements_written_inline(
    program: list[tuple[str, int, int]],
) -> None:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        return tuple(run(program, x))

    assert_structural_equal(main, from_source(written(program)))
