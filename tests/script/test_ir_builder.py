"""The builder itself: which is the current one, and what it gives when."""

import threading

import pytest

from relaxpy import tir
from relaxpy.errors import BuilderStateError, MisuseError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import ir_builder, relax as text_R
from relaxpy.script.ir_builder import IRBuilder, relax as R, tir as T
from relaxpy.script.ir_builder.base import IRBuilder as Base
from tests.script.marked import rejected


def test_paths() -> None:
    assert Base is IRBuilder
    assert ir_builder.tir is T
    assert ir_builder.relax is R
    assert isinstance(ir_builder.ir.ir_module(), ir_builder.ir.frame.IRModuleFrame)
    assert isinstance(R.function(), R.frame.FunctionFrame)
    assert isinstance(T.prim_func(), T.frame.PrimFuncFrame)
    assert isinstance(T.serial(4), T.frame.TIRFrame)


def test_what_is_not_a_statement_is_the_same_as_in_texts() -> None:
    statements = {"SeqExpr", "dataflow", "func_attr", "function", "match_cast", "output"}
    statements |= {"emit", "emit_match_cast", "emit_te", "emit_var_binding"}
    statements |= {"arg", "func_name", "func_ret_struct_info", "func_ret_value"}
    statements |= {"If", "Then", "Else"}
    plain = set(R.__all__) & set(text_R.__all__) - statements
    assert "Callable" in plain
    for name in plain:
        assert getattr(R, name) is getattr(text_R, name), name


def test_the_innermost_builder_is_the_current_one() -> None:
    assert not IRBuilder.is_in_scope()
    with IRBuilder() as outer:
        assert IRBuilder.current() is outer
        with IRBuilder() as inner:
            assert IRBuilder.current() is inner
            assert IRBuilder.is_in_scope()
        assert IRBuilder.current() is outer
    assert not IRBuilder.is_in_scope()
    with pytest.raises(ValueError, match="no IRBuilder is open"):
        IRBuilder.current()


def test_an_error_ends_the_builder() -> None:
    builder = IRBuilder()
    with pytest.raises(ZeroDivisionError), builder, T.prim_func(), T.serial(4):
        _ = 1 // 0
    assert not IRBuilder.is_in_scope()
    with pytest.raises(BuilderStateError, match="nothing was built"):
        builder.get()


def test_builders_of_other_threads_are_not_seen() -> None:
    seen: list[bool] = []
    with IRBuilder():
        thread = threading.Thread(target=lambda: seen.append(IRBuilder.is_in_scope()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_builders_are_left_where_they_are_innermost() -> None:
    outer, inner = IRBuilder(), IRBuilder()
    refused: list[str] = []

    def leave(builder: IRBuilder) -> None:
        with pytest.raises(BuilderStateError, match="not the innermost one that is open") as caught:
            builder.__exit__(None, None, None)
        refused.append(caught.value.diagnostic.message)

    leave(outer)
    with outer:
        with inner:
            leave(outer)
            thread = threading.Thread(target=leave, args=(inner,))
            thread.start()
            thread.join()
            assert IRBuilder.current() is inner
        assert IRBuilder.current() is outer
    leave(outer)
    assert len(refused) == 4
    assert not IRBuilder.is_in_scope()


def test_what_is_wrong_when_a_frame_ends_is_marked_behind_its_with() -> None:
    def build() -> None:
        with R.function():
            R.func_name("f")
            R.arg("x", R.Object)

    with pytest.raises(BuilderStateError) as caught, IRBuilder():
        build()
    message, line, carets = str(caught.value).splitlines()[:3]
    assert "function 'f' returns nothing" in message
    assert line[carets.index("^") : len(carets)] == "R.function()"


def test_words_need_a_builder() -> None:
    for say in (lambda: T.evaluate(0), lambda: R.emit(R.const(1)), lambda: T.serial(4).__enter__()):
        with pytest.raises(BuilderStateError, match="no IRBuilder is open"):
            say()


def test_results_are_there_when_frames_have_ended() -> None:
    builder = IRBuilder()
    with pytest.raises(BuilderStateError, match="nothing was built"):
        builder.get()
    with builder:
        with T.prim_func(), pytest.raises(BuilderStateError, match=r"a T\.prim_func has not ended"):
            builder.get()
        assert_structural_equal(builder.get(), tir.PrimFunc([], tir.Evaluate(0)))
    assert_structural_equal(builder.get(), tir.PrimFunc([], tir.Evaluate(0)))


def test_a_builder_gives_one_result() -> None:
    with IRBuilder() as builder:
        with T.prim_func():
            T.func_name("first")
        with pytest.raises(BuilderStateError, match="returns one result"), T.prim_func():
            pass
        with pytest.raises(BuilderStateError, match=r"T\.evaluate belongs in a kernel"):
            T.evaluate(0)
    assert builder.get().attrs["global_symbol"] == "first"
    with IRBuilder() as builder:
        T.evaluate(1)
        with pytest.raises(BuilderStateError, match="returns one result"), T.prim_func():
            pass
    assert_structural_equal(builder.get(), tir.Evaluate(1))


def test_a_builder_that_is_opened_again_begins_anew() -> None:
    builder = IRBuilder()
    with builder:
        T.evaluate(1)
    with builder:
        T.evaluate(2)
        with pytest.raises(BuilderStateError, match="already open"):
            builder.__enter__()
    assert_structural_equal(builder.get(), tir.Evaluate(2))


def test_frames_are_entered_once_and_left_in_order() -> None:
    with IRBuilder():
        frame = T.serial(4)
        with pytest.raises(BuilderStateError, match="left without being open"):
            frame.__exit__(None, None, None)
        with frame:
            pass
        with pytest.raises(BuilderStateError, match="is entered twice"):
            frame.__enter__()
    with IRBuilder() as builder:
        outer, inner = T.serial(4), T.block("b")
        outer.__enter__()
        inner.__enter__()
        with pytest.raises(BuilderStateError, match=r"a T\.block is still open"):
            outer.__exit__(None, None, None)
        assert builder.frames == []


def test_a_frame_that_is_left_open_is_told() -> None:
    with pytest.raises(BuilderStateError, match="a loop of a kernel is still open"), IRBuilder():
        T.serial(4).__enter__()
    assert not IRBuilder.is_in_scope()


def test_a_frame_that_was_never_entered_is_told() -> None:
    with IRBuilder() as builder, T.prim_func():
        T.attr(0, "key", 1)
    with pytest.raises(BuilderStateError, match=r"a T\.attr is never entered"):
        builder.get()


def test_callbacks_run_when_a_frame_ends_the_last_one_first() -> None:
    order: list[int] = []
    with IRBuilder():
        with T.serial(4), T.block("b") as block:
            block.add_callback(lambda: order.append(1))
            block.add_callback(lambda: order.append(2))
        block = T.block("b")
        block.add_callback(lambda: order.append(3))
        with pytest.raises(ZeroDivisionError), block:
            _ = 1 // 0
        failing = T.block("b")
        failing.add_callback(lambda: order.append(1 // 0))
        with pytest.raises(ZeroDivisionError), failing:
            T.evaluate(0)
        T.evaluate(1)
    assert order == [2, 1]


def test_arguments_that_are_none() -> None:
    for say, message in [
        (lambda: IRBuilder.name_many("ab", []), "expected a list, found 'ab'"),
        (lambda: IRBuilder.name_many(["a"], 3), "expected a list, found 3"),
        (lambda: T.prim_func("f"), "is_private is True or False, found 'f'"),
        (lambda: R.function(is_pure=1), "is_pure is True or False, found 1"),
        (lambda: R.function(is_private=None), "is_private is True or False, found None"),
        (lambda: T.block("b").add_callback(3), "a callback is a function, found 3"),
        (lambda: T.allocate(4, "int8"), "expected a list of extents, found 4"),
        (lambda: T.allocate_const([1], "int8", 1), "expected a list of extents, found 1"),
        (lambda: R.If(object()), "object"),
    ]:
        with rejected(MisuseError, message):
            say()
