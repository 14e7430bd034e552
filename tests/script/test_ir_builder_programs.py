"""Generated programs, said to a builder and written as a text: both are the same."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import given, strategies as st

from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source
from relaxpy.script.ir_builder import IRBuilder, relax as R, tir as T

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


def build(said: tuple[Say, ...], A: Any, index: Any, depth: int) -> None:
    """Say statements to the builder that is open."""
    for say in said:
        n, inner = say.number, say.body
        match say.kind:
            case "store":
                T.buffer_store(A, A[n] + n, index)
            case "call":
                T.evaluate(T.call_extern("int32", "f", index))
            case "serial":
                with T.serial(n, n + 2, annotations={"k": n}) as var:
                    build(inner, A, var, depth + 1)
            case "grid":
                with T.grid(n, 2) as (var, _):
                    build(inner, A, var, depth + 1)
            case "block":
                with T.block(f"b{n}"):
                    var = T.axis.spatial((n, 9), index)
                    T.where(index < n)
                    build(inner, A, var, depth + 1)
            case "if":
                with T.If(index < n):
                    with T.Then():
                        build(inner, A, index, depth + 1)
                    if say.other is not None:
                        with T.Else():
                            build(say.other, A, index, depth + 1)
            case "while":
                with T.While(A[0] < n):
                    T.evaluate(T.continue_loop())
                    build(inner, A, index, depth + 1)
            case "let":
                with T.LetStmt(index + n) as var:
                    build(inner, A, var, depth + 1)
            case "assert":
                with T.Assert(index < n, f"m{n}"):
                    build(inner, A, index, depth + 1)
            case "attr":
                with T.attr(0, "k", n):
                    build(inner, A, index, depth + 1)
            case "allocate":
                with T.allocate([n], "float32"):
                    build(inner, A, index, depth + 1)
            case "thread":
                with T.launch_thread(f"thread.{depth}", n) as var:
                    build(inner, A, var, depth + 1)


@given(st.lists(statements, min_size=1, max_size=4).map(tuple))
def test_kernels_are_those_of_their_texts(said: tuple[Say, ...]) -> None:
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        A = T.arg("A", T.Buffer((16,), "int32"))
        i = T.arg("i", T.int32())
        build(said, A, i, 0)
    lines = "\n".join(f"    {line}" for line in text_of(said, "i", 0))
    head = '@T.prim_func\ndef main(A: T.Buffer((16,), "int32"), i: T.int32):\n'
    assert_structural_equal(builder.get(), from_source(head + lines))
    assert_structural_equal(from_source(builder.get().script()), builder.get())


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


def build_graph(said: list[Any], known: list[Any], c: Any) -> None:
    for say in said:
        match say:
            case ("flow", inner, outs):
                with R.dataflow() as block:
                    local = list(known)
                    for op, a, b in inner:
                        value = getattr(R, op)(local[a % len(local)], local[b % len(local)])
                        local.append(R.emit(value))
                    bound = local[len(known) :]
                    R.output(*(bound[k] for k in sorted(outs) if k < len(bound)))
                known += block.output_vars
            case ("if", yes, no, (op, a, b)):
                with R.If(c) as choice:
                    for frame, branch in ((R.Then(), yes), (R.Else(), no)):
                        with frame:
                            inside = list(known)
                            build_graph(branch, inside, c)
                            left, right = inside[a % len(inside)], inside[b % len(inside)]
                            R.emit(getattr(R, op)(left, right))
                known.append(choice.var)
            case (op, a, b):
                value = getattr(R, op)(known[a % len(known)], known[b % len(known)])
                known.append(R.emit(value))


@given(st.lists(parts, min_size=1, max_size=4))
def test_graph_functions_are_those_of_their_texts(said: list[Any]) -> None:
    with IRBuilder() as builder, R.function():
        R.func_name("main")
        known: list[Any] = [R.arg("x", R.Tensor((4,), "float32"))]
        c = R.arg("c", R.Tensor((), "bool"))
        build_graph(said, known, c)
        R.func_ret_value(known[-1])
    written = ["x"]
    lines = "\n".join(f"    {line}" for line in graph_text(said, written, Names()))
    head = '@R.function\ndef main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):\n'
    text = f"{head}{lines}\n    return {written[-1]}\n"
    assert_structural_equal(builder.get(), from_source(text))
    assert_structural_equal(from_source(builder.get().script()), builder.get())
