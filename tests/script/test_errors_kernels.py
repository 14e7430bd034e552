"""What is said of kernels that are wrong, and where."""

import warnings

import numpy as np
import pytest

from relaxpy import tir
from relaxpy.errors import ParseError, RelaxpyWarning, WellFormedError
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source, tir as T
from tests.rows import sections
from tests.script.marked import check_marks


@pytest.mark.rule("PX-3", "PX-4")
def test_arithmetic_that_makes_no_sense() -> None:
    check_marks("""
        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), n: T.int32):
            A[0] = n // 0
            #      ^^^^^^ division of `n` by zero [PX-3]
            A[0] = n / 2
            #      ^^^^^ the rounding of / on integers is ambiguous
            # hint: use // (down), T.truncdiv (toward zero), or T.Cast("float32", x) / y (a float)
            A[0] = 1 // 0
            #      ^^^^^^ integer division or modulo by zero
            A[0] = A[0] + "a"
            #             ^^^ expected a number, found the string 'a'
            A[0] = T.exp("a")
            #            ^^^ expected a number, found the string 'a'
            A[0] = T.clz(A[0])
            #            ^^^^ clz needs an integer, found float32
            if n:
            #  ^ expected a Boolean, found `n` of int32 [PX-4]
            # hint: compare it, as in n != 0
                A[0] = 0
            A[0] = T.if_then_else(n, 1, 2)
            #                     ^ expected a Boolean, found `n` of int32 [PX-4]
            # hint: compare it, as in n != 0
    """)


def test_a_view_has_the_sizes_and_the_datatype_of_its_region() -> None:
    check_marks("""
        @T.prim_func
        def f(A: T.Buffer((8, 8), "float32"), n: T.int32):
            with T.block("b"):
                T.reads(A[0, 0:4])
                T.writes()
                V = T.match_buffer(A[1, n:n + 4], (5,))
                #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ V is [5], the region that it views is [1, 4]
                # hint: without a shape, a view has the shape of its region
                W = T.match_buffer(A[0:2, 0:4], (4,))
                #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ W is [4], the region that it views is [2, 4]
                # hint: without a shape, a view has the shape of its region
                X = T.match_buffer(A[0, 0:4], (1, 1, 4))
                #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ X is [1, 1, 4], the region that it views is
                # ... [1, 4]
                # hint: without a shape, a view has the shape of its region
                Y = T.match_buffer(A[0, 0:4], (4,), "int32")
                #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ Y is of int32, A of float32
    """)
    fine = from_source(
        "@T.prim_func\ndef f(A: T.Buffer((8, 8), 'float32'), n: T.int32):\n"
        "    with T.block('b'):\n        T.reads()\n        T.writes(A[0, 0:n])\n"
        "        V = T.match_buffer(A[0, 0:n], (4,))\n        V[0] = 1.0\n"
    )
    assert isinstance(fine, PrimFunc)


@pytest.mark.parametrize("text", ["@T.prim_func(privat=True)", "@T.prim_func(private=1)"])
def test_options_of_decorators_are_checked(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        from_source(f"{text}\ndef f(n: T.int32):\n    T.evaluate(n)\n")
    assert caught.value.diagnostic.span is not None


def test_a_private_kernel_has_no_global_symbol() -> None:
    with pytest.raises(ParseError, match="private kernel 'f' has a global_symbol"):
        from_source(
            "@T.prim_func(private=True)\ndef f(n: T.int32):\n"
            '    T.func_attr({"global_symbol": "f"})\n    T.evaluate(n)\n'
        )


def test_deep_nesting_is_refused_with_its_place() -> None:
    with pytest.raises(ParseError, match="nested more than 90 levels deep") as caught:
        from_source(f"@T.prim_func\ndef f(n: T.int32):\n    T.evaluate({'-' * 900}n)\n")
    span = caught.value.diagnostic.span
    assert span is not None
    assert span.line == 3


def test_a_name_that_looks_as_if_it_changed_in_a_loop_is_warned_of() -> None:
    text = """
        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((1,), "float32")):
            total: T.float32 = 0
            for i in range(8):
                total = total + A[i]
            B[0] = total
    """
    with pytest.warns(RelaxpyWarning, match="'total' is another variable here") as caught:
        from_source(text)
    [warning] = caught
    assert warning.message.diagnostic.span.line == 6
    assert "T.alloc_buffer" in warning.message.diagnostic.hint


def test_other_names_may_be_used_again_inside() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_source("""
            @T.prim_func
            def f(A: T.Buffer((8,), "float32"), B: T.Buffer((1,), "float32")):
                x = A[0]
                for i in range(8):
                    x = A[i]
                    A[i] = x
                for i in range(8):
                    y = x + A[i]
                    A[i] = y
        """)


@pytest.mark.rule("PX-7")
@pytest.mark.parametrize(
    "lines",
    [
        ["vi, vj = T.axis.remap('SS', [i, j])", "T.where(vi < j)"],
        ["vi = T.axis.spatial(4, i)", "vj = T.axis.spatial(4, vi)"],
    ],
)
def test_variables_of_a_block_mean_nothing_in_front_of_it(lines: list[str]) -> None:
    head = '@T.prim_func\ndef f(A: T.Buffer((4, 4), "float32")):\n    for i, j in T.grid(4, 4):\n'
    head += '        with T.block("b"):\n            '
    body = [*lines, "A[vi, vj] = T.float32(0)"]
    with pytest.raises(WellFormedError, match="without a definition: 'vi'"):
        from_source(head + "\n            ".join(body))
    fine = [line.replace("vi < j", "i < j").replace("(4, vi)", "(4, j)") for line in body]
    assert isinstance(from_source(head + "\n            ".join(fine)), PrimFunc)


FREE, FREE_BUFFER = tir.Var("free", "int32"), tir.decl_buffer((4,), "float32", "outside")


@pytest.mark.rule("PX-7")
@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("A[T.int32()] = 1.0", "one of int32 without a name"),
        ("A[free] = 1.0", "'free'"),
        ("A[0] = outside[0]", "'outside'"),
        ("for i in range(free): A[i] = 1.0", "'free'"),
        ("B = T.alloc_buffer((free,)); B[0] = 1.0", "'free'"),
        ("assert free > 0, 'm'", "'free'"),
        ("y: T.int32 = free", "'free'"),
    ],
)
def test_a_variable_that_nothing_defines_is_found_without_a_name(statement: str, name: str) -> None:
    text = f'@T.prim_func\ndef f(A: T.Buffer((4,), "float32")):\n    {statement}\n'
    with pytest.raises(WellFormedError, match=f"without a definition: {name}") as caught:
        from_source(text, {"T": T, "free": FREE, "outside": FREE_BUFFER})
    assert caught.value.diagnostic.span is not None
    assert caught.value.diagnostic.span.line == 3


def test_what_has_no_value_is_not_an_operand() -> None:
    check_marks(
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), n: T.int32):
            A[T.axis.spatial(4, n)] = 1.0
        #     ^^^^^^^^^^^^^^^^^^^^ T.axis is a directive, which has no value in an expression
            # hint: write it on a line of its own, and name what it defines
            A[0] = T.float32
            #      ^^^^^^^^^ T.float32 is a datatype, expected a scalar expression
            # hint: T.float32(x) is a value of it
            A[0] = A[0] + T.exp(B)
            #                   ^ expected a scalar expression, found buffer B
            # hint: kernels compute by element: index buffers, inside loops
            v = T.int32()
            with T.let(v, 3.5):
            #    ^^^^^^^^^^^^^ v of int32 is bound to float32
                A[v] = 1.0
            if n and n > 1:
            #  ^ expected a Boolean, found `n` of int32 [PX-4]
            # hint: compare it, as in n != 0
                A[0] = 1.0
            R.match_cast(A, R.Tensor((4,)))
        #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ an R.match_cast is not part of a kernel
            if n > 0:
                y = 1.0
            A[0] = y
            #      ^ unknown name 'y'
            # hint: names bound in a branch end with it: choose by a if c else b, or store to a
            # ... buffer
    """,
        ParseError,
    )


def test_a_parameter_of_negative_size_is_refused_with_its_place() -> None:
    with pytest.raises(ParseError, match="no dimension of -1 elements") as caught:
        from_source('@T.prim_func\ndef f(A: T.Buffer((4, -1), "float32")):\n    A[0, 0] = 1.0\n')
    assert caught.value.diagnostic.span is not None
    assert caught.value.diagnostic.span.line == 2


def test_a_kernel_may_call_a_graph_function_of_its_module() -> None:
    mod = from_source("""
@I.ir_module
class Module:
    @R.function
    def graph(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        Module.graph(A)
""")
    assert "cls.graph(A.data)" in mod.script()


def endless(n: int) -> int:
    return endless(n)


def set_first(buffer: tir.Buffer) -> None:
    buffer[0] = 1.0  # type: ignore[index]


def error_of(function: object) -> ParseError:
    with pytest.raises(ParseError) as caught:
        T.prim_func(function)
    return caught.value


TABLE = np.arange(4)


def test_errors_in_python_that_a_kernel_uses() -> None:
    def recursive(A: T.Buffer((4,), "float32")):
        A[0] = endless(3)

    def assigning(A: T.Buffer((4,), "float32")):
        set_first(A)

    def looking_up(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = TABLE[i]

    error = error_of(recursive)
    assert error.diagnostic.message == "endless calls itself too often"
    assert error.diagnostic.span is not None
    error = error_of(assigning)
    assert error.diagnostic.hint is not None
    assert error.diagnostic.hint.startswith("write T.buffer_store(A, value, [index])")
    error = error_of(looking_up)
    assert error.diagnostic.message.startswith("the members of a ndarray are chosen while")


def test_notes_name_only_the_code_of_users() -> None:
    with pytest.raises(ParseError) as caught:
        from_source('@T.prim_func\ndef f(A: T.Buffer((4.0,), "float32")):\n    A[0] = 1.0\n')
    assert caught.value.diagnostic.notes == ()


def test_attributes_of_a_block_may_be_arrays() -> None:
    text = '@T.prim_func\ndef f(n: T.int32):\n    with T.block("b"):\n'
    text += '        T.block_attr({"k": data})\n        T.block_attr({"k": data})\n'
    assert isinstance(from_source(text, {"T": T, "data": TABLE}), PrimFunc)


def test_macros_that_use_themselves_are_refused_with_their_place() -> None:
    text = """
@T.macro
def first(A):
    second(A)

@T.macro
def second(A):
    first(A)

@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    first(A)
"""
    with pytest.raises(ParseError, match=r"macro (first|second) uses itself too often") as caught:
        from_source(text)
    assert caught.value.diagnostic.span is not None


#: Programs with what is said of them, and where.
MARKED = sections(
    """
--- names attributes and arity
@T.prim_func
def f(A: T.Buffer((4,), "float32"), n: T.int32):
    for i in T.seril(4):
    #          ^^^^^ T has no attribute 'seril'
    # hint: did you mean `T.serial`?
        A[i] = T.float32(0)
    for i in T.serial(4):
        A[i] = B[i]
#              ^ unknown name 'B'
        A[i] = T.max(1, 2, 3)
#                          ^ T.max takes 2 positional arguments, found 3
# hint: it is T.max(a, b)
        A[i] = T.exp()
#              ^^^^^ T.exp: argument 'x' is missing
# hint: it is T.exp(x)
--- operators of tensors name the functions of scalars
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    A[0] = R.exp(A[1])
#                ^^^^ relax.exp: x is a tensor, found R.Prim(value=A[1]) [DER-36]
# hint: a kernel computes numbers: write T.exp(...)
    A[1] = R.maximum(A[1], A[2])
#          ^^^^^^^^^ R.maximum is an operator of tensors [TOP-7]
# hint: a kernel computes numbers: write T.max(...)
    A[2] = R.nn.relu(A[3])
#                    ^^^^ relax.nn.relu: data is a tensor, found R.Prim(value=A[3]) [DER-36]
# hint: a kernel computes numbers with operators and functions of T, such as T.max(x, y)
--- parameters need annotations of their kind
@T.prim_func
def f(
    a,
#   ^ parameter 'a' has no annotation
# hint: annotate it, as in A: T.Buffer((4, 4), "float32"), a: T.handle or n: T.int32
    b: 5,
    #  ^ a parameter is a buffer, a handle or a scalar, found 5
    # hint: annotate it, as in A: T.Buffer((4, 4), "float32"), a: T.handle or n: T.int32
    c: T.Buffer(("n",), "float32"),
    #            ^^^ a dimension of a buffer is an integer, found 'n'
    # hint: declare a variable, as in n = T.int32(), and use T.match_buffer
):
    T.evaluate(0)
--- stores point at what does not fit
@T.prim_func
def f(A: T.Buffer((4, 4), "float32"), n: T.int32):
    A[0] = 1
#     ^ buffer A has 2 dimensions, found 1 index
    A[0, 1.5] = 1
#   ^^^^^^^^^ an index of A is an integer, found `T.float32(1.5)` of float32
    A[0, 0] = "a"
    #         ^^^ expected a scalar expression, found 'a'
    A[0, 0] = A[0, 0:4]
    #         ^^^^^^^^^ a cast keeps the lanes: float32x4 to float32
    A[0, 0] = A[0:2, 0:4]
    #         ^^^^^^^^^^^ a slice of buffer A is a region, not a value
    # hint: give every dimension an index, and the last slice a constant length
    n[0] = 1
#   ^ only elements of buffers can be assigned to, found `n` of int32
    n += 1
#   ^^^^^^ names in a kernel are bound once
# hint: keep what changes in a buffer, as in A[i] += 1
--- a name is bound once in a scope
@T.prim_func
def f(n: T.int32):
    x = n + 1
    x = n + 2
#   ^ 'x' is already defined in this scope
# hint: kernels bind a name once; use another name, or a buffer for what changes
    k = T.meta_var(1)
    k = T.meta_var(1)
    k = T.meta_var(True)
#   ^ 'k' is already defined in this scope
# hint: kernels bind a name once; use another name, or a buffer for what changes
--- loops run over integers in forms of their own
@T.prim_func
def f(x: T.float32):
    for i in [1, 2]:
    #        ^^^^^^ a loop in a kernel runs over range, T.grid or the like, found a list
    # hint: a Python function that the kernel calls can loop over values of Python
        T.evaluate(0)
    for i in T.serial(x):
    #                 ^ a loop runs over integers, found `x` of float32
    # hint: convert it by T.Cast("int32", ...), or divide by //
        T.evaluate(0)
    for i, j in T.grid(2, 3, 4):
#       ^^^^ expected 2 values, found 3
        T.evaluate(0)
    for i in range(0, 8, 2, 1):
    #        ^^^^^^^^^^^^^^^^^ range in a kernel takes an end, or a start, an end and a step
        T.evaluate(0)
    for i in range(1, 8, 0):
    #                    ^ a step is an integer other than 0, found 0
        T.evaluate(0)
    for i in range(3):
        T.evaluate(i)
    else:
        T.evaluate(0)
#       ^^^^^^^^^^^^^ a loop in a kernel has no else
    break
#   ^^^^^ break is outside of a loop
    T.evaluate(T.continue_loop())
#   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ continue is outside of a loop
    T.break_loop()
#   ^^^^^^^^^^^^^^ break is outside of a loop
    while x > T.float32(0):
        T.break_loop()
--- words of blocks stand in blocks once
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    T.reads(A[0])
#   ^^^^^^^^^^^^^ T.reads belongs in a block, with T.block(...):
    vi = T.axis.spatial(4, 0)
    #    ^^^^^^^^^^^^^^^^^^^^ T.axis belongs directly in a block, with T.block(...):
    for i in range(4):
        with T.block("b"):
            vi = T.axis.remap("X", [i])
            #                 ^^^ the kinds of block variables are letters S and R,
            # ... found 'X'
            vj = T.axis.remap("SS", [i])
            #                 ^^^^ 2 kinds for 1 loop variable
            # hint: write a letter for each, as in T.axis.remap("SR", [i, j])
            vk = T.axis.spatial(4, 1.5)
            #                      ^^^ a block variable is bound to an integer, found
            # ... `T.float32(1.5)` of float32
            # hint: convert it by T.Cast("int32", ...), or divide by //
            T.reads(A[0])
            T.reads(A[0])
#           ^^^^^^^^^^^^^ T.reads occurs twice in this block
            T.where(i < 3)
            T.where(i < 3)
#           ^^^^^^^^^^^^^^ T.where occurs twice in this block
            T.block_attr({"k": 1})
            T.block_attr({"k": 2})
#           ^^^^^^^^^^^^^^^^^^^^^^ block attribute 'k' is 1 and 2 at once
            T.block_attr({"t": {"a": 1, "b": 1}})
            T.block_attr({"t": {"c": 1, "b": 2}})
#           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ block attribute 'b' is 1 and 2 at once
            T.block_attr({"t": 3})
#           ^^^^^^^^^^^^^^^^^^^^^^ block attribute 't' is {'a': 1, 'b': 1} and 3 at once
            with T.init():
                A[0] = 0
            with T.init():
            #    ^^^^^^^^ T.init occurs twice in this block
                A[0] = 0
    with T.block("c") as c:
    #                    ^ T.block has no value: leave out `as`
        T.evaluate(0)
    with A:
    #    ^ with takes T.block and the like, found buffer A
        T.evaluate(0)
    with T.Then():
    #    ^^^^^^^^ with T.Then belongs directly in with T.If(condition):
        T.evaluate(0)
--- memory is allocated in a block or at the top
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    for i in range(4):
        B = T.alloc_buffer((1,), "float32")
        #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ T.alloc_buffer belongs in a block or at the top
        # ... of the kernel
        B[0] = A[i]
--- match buffer takes a parameter and a shape
@T.prim_func
def f(a: T.handle):
    A = T.match_buffer(a)
    #   ^^^^^^^^^^^^^^^^^ match_buffer of a needs a shape
    # hint: write T.match_buffer(a, (4, 4), "float32")
    B = T.match_buffer(5, (4,))
    #                  ^ match_buffer takes a handle parameter or a region, found 5
    C = T.match_buffer(a, (4,), "flaot32")
    #                           ^^^^^^^^^ unknown dtype 'flaot32' [DT-1]
    # hint: did you mean 'float32'?
    D = T.match_buffer(a, (4,))
    E = T.match_buffer(a, (4,))
    #   ^^^^^^^^^^^^^^^^^^^^^^^ parameter a already has a buffer
--- python that is not a kernel
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    import os
#   ^^^^^^^^^ import is not part of a kernel
# hint: import at the top of the file; its names can be used here
    try:
#   ^^^ try is not part of a kernel
# hint: errors of a running program end it; check before with an if
        T.evaluate(0)
    finally:
        T.evaluate(0)
    A[0]
#   ^^^^ the value of `A[0]` is not used
# hint: T.evaluate(...) evaluates it
    return
#   ^^^^^^ return in a kernel has a value
# hint: leave it out otherwise
--- buffers and memory are made of what they can be
@T.prim_func
def f(A: T.Buffer((4,), "float32"), n: T.int32):
    B = T.alloc_buffer((1.5,))
    #                   ^^^ a dimension of a buffer is an integer, found 1.5
    C = T.alloc_buffer((4,), strides=8)
    #                                ^ expected a list of integers, found 8
    # hint: each member is a stride
    D = T.alloc_buffer((4,), elem_offset=n > 1)
    #                                    ^^^^^ the offset of a buffer is an integer, found
    # ... n > 1
    E = T.alloc_buffer((4,), align="a")
    #                              ^^^ align of a buffer is an integer, found 'a'
    F = T.decl_buffer((4,), data=A)
    #                            ^ data of a buffer is a pointer variable, found A
    G = T.match_buffer(n, (4,))
    #                  ^ only a handle is matched with a buffer, n is int32
    # hint: declare it as n: T.handle
    p = T.allocate_const([1, 2, 3], "int8", [4])
    #                    ^^^^^^^^^ 4 elements are allocated, the constant has 3
    q = T.allocate_const(["a"], "int8", [1])
    #                    ^^^^^ expected an array of numbers, found ['a']
    r = T.allocate_const(["1"], "float32", [1])
    #                    ^^^^^ expected an array of numbers, found ['1']
    s = T.allocate_const([1, 300], "int8", [2])
    #                    ^^^^^^^^ element 300 of the constant is not a value of int8
--- words around statements take what they name
@T.prim_func
def f(A: T.Buffer((4,), "float32"), n: T.int32):
    T.launch_thread(3, 4)
    #               ^ a hardware index is named by a string or returned by T.env_thread,
    # ... found 3
    T.realize(A, "global")
    #         ^ expected a region of a buffer such as A[0:4], found A
    T.let(3, 4)
    #     ^ let binds a variable, found 3
    T.attr(n, 3, 4)
    #         ^ a key is a string, found 3
    for i in T.serial(4, annotations=3):
        #                            ^ attributes are a dict keyed by strings, found 3
        pass
    for i in range(4):
        T.evaluate(T.Let(i, where={3: i}))
        #                         ^^^^^^ where is a dict keyed by variables, found {3: i}
        T.evaluate(T.bitwise_and(i))
        #          ^^^^^^^^^^^^^ T.bitwise_and: argument 'y' is missing
        # hint: it is T.bitwise_and(x, y)
        with T.block("b"):
            v = T.axis.spatial(1.5, i)
            #                  ^^^ a domain is an extent or (begin, end), found 1.5
--- what kernels write otherwise is said
@T.prim_func
def f(A: T.Buffer((8, 4), "float32"), n: T.int32):
    A[0, 0] = max(A[1, 0], 0)
    #         ^^^^^^^^^^^^^^^ the value of `A[1, 0] < T.float32(0.0)` is not known yet, so
    # ... it has no truth value
    # hint: write T.max(A[1, 0], 0)
    A[0, 0] = A[1, 0] ** 2
    #         ^^^^^^^^^^^^ ** is not defined between `A[1, 0]` of float32 and 2
    # hint: write T.pow(A[1, 0], 2)
    A[0:2, 0] = 1.0
#   ^^^^^^^^^ only the last index of A may be a vector
    # hint: write a loop for each index that runs
    if n:
    #  ^ expected a Boolean, found `n` of int32 [PX-4]
    # hint: compare it, as in n != 0
        A[0, 0] = 1.0
    for i in T.serial(8, step=n):
    #                         ^ a step is an integer other than 0, found n
        A[i, 0] = 1.0
    def g(a):
#   ^^^ a function is not part of a kernel
    # hint: define it outside; functions of Python are called as they are
        return a
--- truth values are not positions
@T.prim_func
def f(A: T.Buffer((4,), "float32"), n: T.int32):
    A[n > 1] = 1.0
#   ^^^^^^^^ an index of A is an integer, found `n > 1` of bool
    A[0] = A[True]
    #      ^^^^^^^ an index of A is an integer, found `T.bool(True)` of bool
    for i in range(n > 1):
    #              ^^^^^ a loop runs over integers, found `n > 1` of bool
        A[0] = 1.0
    with T.block("b"):
        v = T.axis.spatial(4, n > 1)
        #                     ^^^^^ a block variable is bound to an integer, found `n > 1`
        # ... of bool
        T.reads(A[n > 1:4])
        #         ^^^^^ a begin is an integer, found `n > 1` of bool
--- strings without bits
@T.prim_func
def f(A: T.Buffer((4,), "int64")):
    with T.block("b"):
        A[0] = T.reinterpret("int64", "a")
        #                             ^^^ reinterpret takes a number or a pointer, found 'a'
--- slices that are not vectors
@T.prim_func
def f(A: T.Buffer((4, 8), "float32"), n: T.int32):
    A[0, 0:4] = A[0:2, 0:8:2]
    #           ^^^^^^^^^^^^^ only the last index of A may be a vector
    # hint: write a loop for each index that runs
    A[0, 0:4] = A[0, 3:-1:-1]
    #                  ^^ the step of a slice is positive, found -1
    A[0, ::-1] = 1.0
    #    ^^^^ the step of a slice is positive, found -1
    A[0, 0:4:0] = 1.0
    #    ^^^^^ the step of a slice is positive, found 0
    A[0, 4:0] = 1.0
    #    ^^^ a slice that is a vector has at least one element
    A[0, 0:n] = 1.0
    #    ^^^ a slice that is a vector has a constant length, found `n`
    T.evaluate(A[0, 0:n:2])
    #          ^^^^^^^^^^^ a slice that is a vector has a constant length, found
    # ... `(n + 1) // 2`
--- augmented assignments are marked as a whole
@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "int32")):
    A[0] **= 2
#   ^^^^^^^^^^ ** is not defined between `A[0]` of float32 and 2
    # hint: write T.pow(A[0], 2)
    B[0] /= 3
#   ^^^^^^^^^ the rounding of / on integers is ambiguous
    # hint: use // (down), T.truncdiv (toward zero), or T.Cast("float32", x) / y (a float)
    A[0], B[0] = 1.0, 2
#   ^^^^ each element is assigned in a separate statement
--- a declared datatype is that of the value
@T.prim_func
def f(n: T.int32) -> T.int32:
    x: T.int32 = 1.5
    #            ^^^ x is int32, the value is 1.5
    y: T.float32 = n
    #              ^ y is float32, the value is int32
    if n > 0:
        return 1.5
    #          ^^^ the result is int32, the value is 1.5
    if n > 1:
        return T.float32(n)
    #          ^^^^^^^^^^^^ the result is int32, the value is float32
    return 2.0
--- frames without a value take no name
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    with T.attr(0, "key", 1) as x:
    #                           ^ T.attr has no value: leave out `as`
        A[0] = 1.0
    with T.serial(4) as i:
    #    ^^^^^^^^^^^ a loop is a for statement
    # hint: write for i in T.serial(4):
        A[i] = 1.0
--- annotations that declare no parameter
@T.prim_func
def f(
    A: T.Buffer,
    #  ^^^^^^^^ a parameter is a buffer, a handle or a scalar, found class T.Buffer
    # hint: a buffer has a shape and a datatype, as in T.Buffer((4, 4), "float32")
    B: T.Buffer((size, 4), "float32"),
    #            ^^^^ unknown name 'size'
    # hint: take a handle, as a: T.handle, and begin with size = T.int32(), then A =
    # ... T.match_buffer(a, (size,))
    n: "int32",
    #  ^^^^^^^ a parameter is a buffer, a handle or a scalar, found 'int32'
    # hint: annotations are not strings: write n: T.int32
    m: T.void,
    #  ^^^^^^ a parameter is a buffer, a handle or a scalar, found a datatype
    # hint: annotate it, as in A: T.Buffer((4, 4), "float32"), a: T.handle or n: T.int32
):
    T.evaluate(0)
--- calls between kernels fit their parameters
@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        Module.store(A, A)
#       ^^^^^^^^^^^^^^^^^^ store takes 1 argument, found 2
        A[0] = Module.store(A)
        #      ^^^^^^^^^^^^^^^ `store(A)` has no value

    @T.prim_func
    def store(A: T.Buffer((4,), "float32")):
        A[0] = 1.0
--- a macro of a kernel returns nothing
@T.macro
def first(A):
    return A[0]
#   ^^^^^^^^^^^ a macro of a kernel returns nothing
# hint: write its result to a buffer, or make it a Python function

@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    first(A)
--- a buffer is not a truth value and equals nothing
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    A[0] = not A
    #          ^ the truth value of buffer A is not known at parse time
    # hint: kernels compute by element: index buffers, inside loops
    A[0] = -A
    #      ^^ - is not defined on buffer A
    # hint: kernels compute by element: index buffers, inside loops
    A[0] = A[1] == A
    #      ^^^^^^^^^ whether buffers are equal is known only when the program runs
    # hint: compare elements, inside loops; `A is B` tests whether they are one buffer
    raise ValueError
#   ^^^^^^^^^^^^^^^^ raise is not part of a kernel
    # hint: write assert condition, message
    try:
#   ^^^ try is not part of a kernel
    # hint: errors of a running program end it; check before with an if
        A[0] = 1.0
    except* ValueError:
        A[0] = 2.0
"""
)


@pytest.mark.parametrize("text", MARKED.values(), ids=MARKED)
def test_a_program_is_wrong_where_its_marks_say(text: str) -> None:
    check_marks(text)
