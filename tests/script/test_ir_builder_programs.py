"""Generated programs, said to a builder and written as a text: both are the same."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import given, strategies as st

from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source
from tests.script.said import said


def check(text: str) -> None:
    found = said(text)
    assert_structural_equal(found, from_source(text))
    assert_structural_equal(from_source(found.script()), found)


# --- kernels


@dataclass(frozen=True)
class Say:
    """A statement of one of these kinds, and those in it."""

    kind: str
    number: int
    body: tuple["Say", ...] = ()
    other: tuple["Say", ...] | None = None


LEAVES = ("store", "call")
HOLDERS = ("serial", "grid", "block", "if", "while", "let", "assert", "attr", "allocate", "thread")


def _nested(inner: st.SearchStrategy[Say]) -> st.SearchStrategy[Say]:
    bodies = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.builds(Say, st.sampled_from(HOLDERS), st.integers(1, 4), bodies, st.none() | bodies)


statements = st.recursive(
    st.builds(Say, st.sampled_from(LEAVES), st.integers(0, 3)), _nested, max_leaves=8
)


def text_of(said: tuple[Say, ...], index: str, depth: int) -> Iterator[str]:
    """The lines of statements; `index` is a variable that they may use."""
    v = f"v{depth}"
    for say in said:
        n, inner = say.number, say.body
        match say.kind:
            case "store":
                yield f"A[{index}] = A[{n}] + {n}"
                continue
            case "call":
                yield f'T.evaluate(T.call_extern("int32", "f", {index}))'
                continue
            case "serial":
                yield f"for {v} in T.serial({n}, {n} + 2, annotations={{'k': {n}}}):"
            case "grid":
                yield f"for {v}, {v}_ in T.grid({n}, 2):"
            case "block":
                yield f'with T.block("b{n}"):'
                yield f"    {v} = T.axis.spatial(({n}, 9), {index})"
                yield f"    T.where({index} < {n})"
            case "if":
                yield f"if {index} < {n}:"
            case "while":
                yield f"while A[0] < {n}:"
                yield "    T.evaluate(T.continue_loop())"
            case "let":
                yield f"with T.LetStmt({index} + {n}) as {v}:"
            case "assert":
                yield f'with T.Assert({index} < {n}, "m{n}"):'
            case "attr":
                yield f'with T.attr(0, "k", {n}):'
            case "allocate":
                yield f'with T.allocate([{n}], "float32") as {v}_data:'
            case "thread":
                yield f'with T.launch_thread("thread.{depth}", {n}) as {v}:'
        binds = say.kind in ("serial", "grid", "block", "let", "thread")
        yield from (f"    {line}" for line in text_of(inner, v if binds else index, depth + 1))
        if say.kind == "if" and say.other is not None:
            yield "else:"
            yield from (f"    {line}" for line in text_of(say.other, index, depth + 1))


@given(st.lists(statements, min_size=1, max_size=4).map(tuple))
def test_kernels_are_those_of_their_texts(said: tuple[Say, ...]) -> None:
    lines = "\n".join(f"    {line}" for line in text_of(said, "i", 0))
    head = '@T.prim_func\ndef main(A: T.Buffer((16,), "int32"), i: T.int32):\n'
    check(f"{head}{lines}")


# --- graph functions

OPERATORS = ("add", "multiply", "subtract")
values = st.tuples(st.sampled_from(OPERATORS), st.integers(0, 9), st.integers(0, 9))
flows = st.tuples(
    st.just("flow"), st.lists(values, min_size=1, max_size=4), st.sets(st.integers(0, 3))
)
parts: st.SearchStrategy[Any] = st.recursive(
    values | flows,
    lambda inner: st.tuples(
        st.just("if"), st.lists(inner, max_size=2), st.lists(inner, max_size=2), values
    ),
    max_leaves=6,
)


class Names:
    """Variables by number, and new names."""

    def __init__(self) -> None:
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"y{self.count}"


def graph_text(said: list[Any], known: list[str], names: Names) -> Iterator[str]:
    for say in said:
        match say:
            case ("flow", inner, outs):
                local, lines = list(known), []
                for op, a, b in inner:
                    name = names.new()
                    lines.append(
                        f"    {name} = R.{op}({local[a % len(local)]}, {local[b % len(local)]})"
                    )
                    local.append(name)
                bound = local[len(known) :]
                given_out = [bound[k] for k in sorted(outs) if k < len(bound)]
                yield "with R.dataflow():"
                yield from lines
                yield f"    R.output({', '.join(given_out)})"
                known += given_out
            case ("if", yes, no, (op, a, b)):
                result = names.new()
                for word, branch in (("if c:", yes), ("else:", no)):
                    inside = list(known)
                    yield word
                    yield from (f"    {line}" for line in graph_text(branch, inside, names))
                    left, right = inside[a % len(inside)], inside[b % len(inside)]
                    yield f"    {result} = R.{op}({left}, {right})"
                known.append(result)
            case (op, a, b):
                name = names.new()
                yield f"{name} = R.{op}({known[a % len(known)]}, {known[b % len(known)]})"
                known.append(name)


@given(st.lists(parts, min_size=1, max_size=4))
def test_graph_functions_are_those_of_their_texts(said: list[Any]) -> None:
    written = ["x"]
    lines = "\n".join(f"    {line}" for line in graph_text(said, written, Names()))
    head = '@R.function\ndef main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):\n'
    check(f"{head}{lines}\n    return {written[-1]}\n")
