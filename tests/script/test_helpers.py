"""Python functions that a text calls, and what their words of T and R do to the program."""

import functools
from collections.abc import Iterator

import pytest

from relaxpy import relax, te, tir
from relaxpy.errors import BuilderStateError, MisuseError, ParseError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.script.ir_builder import IRBuilder, relax as builder_R, tir as builder_T


def copy(A: tir.Buffer, B: tir.Buffer) -> None:
    with T.serial(4) as i, T.block("copy"):
        vi = T.axis.spatial(4, i)
        T.reads(A[vi])
        T.writes(B[vi])
        T.buffer_store(B, A[vi], [vi])


def copy_by_builder(A: tir.Buffer, B: tir.Buffer) -> None:
    with builder_T.serial(4) as i, builder_T.block("copy"):
        vi = builder_T.axis.spatial(4, i)
        builder_T.buffer_store(B, A[vi], [vi])


def temporary() -> tir.Buffer:
    return T.alloc_buffer((4,), "float32")


def pairs() -> object:
    return T.grid(2, 2)


def row(i: tir.Var) -> tir.Var:
    return T.axis.spatial(2, i)


def same(found: tir.PrimFunc | relax.Function, expected: tir.PrimFunc | relax.Function) -> None:
    assert_structural_equal(found, expected.with_attr("global_symbol", "main"))
    assert_structural_equal(from_source(found.script()), found)


@pytest.mark.parametrize("helper", [copy, copy_by_builder])
def test_helpers_enter_frames(helper: object) -> None:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        helper(A, B)

    @T.prim_func
    def expected(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("copy"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]

    same(main, expected)


class Layer:
    """What is called need not be a function."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, A: tir.Buffer) -> None:
        T.buffer_store(A, self.value, [0])

    def at(self, A: tir.Buffer, index: int) -> None:
        T.buffer_store(A, self.value, [index])


def test_helpers_of_all_kinds() -> None:
    layer = Layer(2)
    last = functools.partial(layer.at, index=3)

    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        layer(A)
        layer.at(A, 1)
        last(A)

    @T.prim_func
    def expected(A: T.Buffer((4,), "float32")):
        A[0] = T.float32(2)
        A[1] = T.float32(2)
        A[3] = T.float32(2)

    same(main, expected)


def test_helpers_give_frames_buffers_and_variables() -> None:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        B = temporary()
        for i, j in pairs():
            with T.block("b"):
                vi = row(i)
                vj = T.axis.spatial(2, j)
                B[vi] = A[vj]

    @T.prim_func
    def expected(A: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,), "float32")
        for i, j in T.grid(2, 2):
            with T.block("b"):
                vi = T.axis.spatial(2, i)
                vj = T.axis.spatial(2, j)
                B[vi] = A[vj]

    same(main, expected)
    assert "B = T.alloc_buffer" in main.script()
    assert 'vi, vj = T.axis.remap("SS", [i, j])' in main.script()


def test_helpers_bind_values_of_graphs() -> None:
    def twice(x: relax.Expr) -> relax.Expr:
        y = R.emit(R.exp(x))
        R.emit(R.print(y))
        z = R.match_cast(y, R.Tensor((4,), "float32"))
        return R.add(y, z)

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        out = twice(x)
        return out

    @R.function(pure=False)
    def expected(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        _ = R.print(y)
        z = R.match_cast(y, R.Tensor((4,), "float32"))
        out = R.add(y, z)
        return out

    same(main, expected)
    spans = [binding.span for block in main.body.blocks for binding in block.bindings]
    assert all(span is not None and "twice(x)" in span.source.line(span.line) for span in spans)


def doubled(t: te.Tensor) -> te.Tensor:
    return te.compute(t.shape, lambda i: t[i] * 2, name="double")


def test_kernels_of_helpers_join_the_module() -> None:
    def double(x: relax.Expr) -> relax.Expr:
        return R.emit_te(doubled, x)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = double(x)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.emit_te(doubled, x)
            return y

    assert_structural_equal(Module, Expected)


def test_helpers_that_do_what_they_cannot() -> None:
    def drops() -> None:
        T.block("b")

    def iterates() -> None:
        for _ in T.serial(4):  # type: ignore[attr-defined]
            pass

    def misplaced() -> None:
        T.reads()

    def block_of_graph(x: relax.Expr) -> None:
        with R.dataflow():  # type: ignore[attr-defined]
            R.emit(x)

    def leaves_open() -> None:
        T.serial(4).__enter__()  # type: ignore[attr-defined]

    def loop() -> Iterator[object]:
        with T.serial(4) as i:
            yield i

    def half() -> None:
        generators.append(loop())
        T.evaluate(next(generators[-1]))

    def enters_twice() -> None:
        frame = T.serial(4)
        with frame:
            pass
        with frame:
            pass

    def crosses() -> None:
        outer, inner = T.serial(4), T.block("b")
        outer.__enter__()  # type: ignore[attr-defined]
        inner.__enter__()  # type: ignore[attr-defined]
        outer.__exit__(None, None, None)  # type: ignore[attr-defined]

    generators: list[Iterator[object]] = []
    for helper, message in [
        (leaves_open, "a loop of a kernel is entered and never left"),
        (half, "a loop of a kernel is entered and never left"),
        (enters_twice, "a loop of a kernel can be entered only once"),
        (crosses, "a loop of a kernel is left before the frame inside it"),
        (drops, r"a T\.block is never entered"),
        (iterates, "Python cannot iterate over a loop of a kernel"),
        (misplaced, r"T\.reads belongs in a block"),
    ]:
        with pytest.raises(ParseError, match=message):
            from_source("@T.prim_func\ndef main():\n    helper()\n", {"T": T, "helper": helper})
    generators[0].close()  # type: ignore[attr-defined]

    with pytest.raises(ParseError, match=r"an R\.dataflow belongs in the program itself"):

        @R.function
        def graph(x: R.Tensor((4,), "float32")):
            block_of_graph(x)
            return x

    def by_builder(x: relax.Expr) -> relax.Var:
        return builder_R.emit(x)

    with pytest.raises(ParseError, match=r"uses R and I of relaxpy\.script"):

        @R.function
        def other(x: R.Tensor((4,), "float32")):
            y = by_builder(x)
            return y


def test_frames_of_helpers_end_with_the_call() -> None:
    kept: list[object] = []

    def keeps() -> object:
        kept.append(T.serial(4))
        return kept[-1]

    text = "@T.prim_func\ndef main():\n    for i in keeps():\n        T.evaluate(i)\n"
    from_source(text, {"T": T, "keeps": keeps})
    with pytest.raises(MisuseError, match="in the call that creates it"), kept[0]:  # type: ignore[attr-defined]
        pass


def test_words_of_texts_act_in_a_builder_too() -> None:
    with IRBuilder() as builder, builder_T.prim_func():
        builder_T.func_name("main")
        A = builder_T.arg("A", builder_T.Buffer((4,), "float32"))
        with T.serial(4) as i, T.block("b"):
            vi = T.axis.spatial(4, i)
            T.buffer_store(A, 1, [vi])

        @T.prim_func
        def read_meanwhile(B: T.Buffer((4,), "float32")):
            for i in T.serial(4):
                with T.block("b"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = T.float32(1)

    same(builder.get(), read_meanwhile)
    with (
        IRBuilder(),
        pytest.raises(BuilderStateError, match="is for parsed programs only"),
        builder_R.function(),
    ):
        R.match_shape(R.const(1), (2,))


def test_outside_a_program_words_are_records() -> None:
    first, second = T.block("b"), T.block("b")
    assert first == second
    assert T.serial(4).bounds == T.serial(4).bounds
