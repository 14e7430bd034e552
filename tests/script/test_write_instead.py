"""What users of other libraries write is refused with what to write here."""

import contextlib
import math

import pytest

from relaxpy import relax, tir
from relaxpy.errors import MisuseError, ParseError, RelaxpyError
from relaxpy.script import from_source, relax as R, tir as T
from relaxpy.script.language.wording import _INSTEAD, operators_called
from tests.rows import table

TEXT = """
@R.function
def f(x: R.Tensor((4, 4), "float32"), b: R.Tensor((4, 4), "bool"), k: R.Tensor((4, 4), "int32")):
    y = {written}
    return y
"""

#: What is written, its hint (if there is one), and what then is read in its place.
HINTS = table("""
x & x => write R.logical_and(x, x), or R.bitwise_and(x, x) for the bits of integers
    => R.logical_and(b, b)
b | k => write R.logical_or(b, k), or R.bitwise_or(b, k) for the bits of integers
    => R.logical_or(b, b)
x ^ 2 => write R.logical_xor(x, 2), or R.bitwise_xor(x, 2) for the bits of integers
    => R.logical_xor(x, x)
~x => write R.logical_not(x), or R.bitwise_not(x) for the bits of integers => R.logical_not(x)
+x => write x => x
k + [1, 2, 3, 4] => for a tensor of these numbers write R.const([1, 2, 3, 4], dtype)
    => k + R.const([1, 2, 3, 4], 'int32')
(1.5, 2) * x => for a tensor of these numbers write R.const([1.5, 2], dtype)
    => x * R.const([1.5, 2, 3, 4], 'float32')
x @ [[1, 2], [3, 4], [5, 6], [7, 8]]
    => for a tensor of these numbers write R.const([[1, 2], [3, 4], [5, 6], [7, 8]], dtype)
    => x @ R.const([[1, 2], [3, 4], [5, 6], [7, 8]], 'float32')
R.reshape(x, ('4 * 4',)) => write it without quotes => R.reshape(x, (4 * 4,))
x.transopse() => operators are functions: R.permute_dims(x, ...) => R.permute_dims(x)
R.nn.linear(x, x) => write R.linear(x, weight, bias), or R.matmul(x, R.permute_dims(weight))
    => R.linear(x, x)
R.nn.tril(x) => did you mean `R.tril`? => R.tril(x)
R.gather(x, k, 1) => did you mean `R.gather_elements`? => R.gather_elements(x, k, 1)
x.scatter(k, x) => operators are functions: R.scatter_elements(x, ...)
    => R.scatter_elements(x, k, x)
R.transpose(x) => did you mean `R.permute_dims`? => R.permute_dims(x)
R.concatenate((x, x)) => did you mean `R.concat`? => R.concat((x, x))
T.exp(x) => write R.exp(x) => R.exp(x)
T.max(x, x) => write R.maximum(x, x) => R.maximum(x, x)
R.cast(x, "float16") => for another datatype write R.astype(x, 'float16')
    => R.astype(x, 'float16')
R.exp => call it: R.exp(...) => R.exp(x)
{'x': x} => several values are a tuple => (x,)
R.nn.Linear(4, 4)(x) => write R.linear(x, weight, bias), or R.matmul(x, R.permute_dims(weight))
    => R.linear(x, x)
R.concat(x, x) => tensors is one list, as in [x, x] => R.concat([x, x])
R.concat((x, x), x) => - => R.concat((x, x), 0)
x.transpose() => operators are functions: R.permute_dims(x, ...) => R.permute_dims(x)
""")


@pytest.mark.parametrize(("written", "hint", "instead"), HINTS)
def test_what_other_libraries_have_is_refused_with_what_works(written, hint, instead) -> None:
    with pytest.raises(RelaxpyError) as caught:
        from_source(TEXT.format(written=written))
    assert (caught.value.diagnostic.hint or "-") == hint
    from_source(TEXT.format(written=instead))


KERNEL = """
@T.prim_func
def f(a: T.handle, A: T.Buffer((4, 4), "float32")):
    {written}
"""

#: What is written in a kernel, its hint, and what then is read in its place.
HINTS_OF_KERNELS = table("""
T.evaluate(a[0]) => write A = T.match_buffer(a, (4, 4), "float32") first, and index A
    => B = T.match_buffer(a, (4, 4), "float32"); T.evaluate(B[0, 0])
B = T.match_buffer(a, (n, 4), "float32") => declare it before: n = T.int32()
    => n = T.int32(); B = T.match_buffer(a, (n, 4), "float32")
B = T.match_buffer(a) => write T.match_buffer(a, (4, 4), "float32")
    => B = T.match_buffer(a, (4, 4), "float32")
B = T.empty((4,), "float32") => did you mean `T.alloc_buffer`?
    => B = T.alloc_buffer((4,), "float32")
for i in T.grid(A.shape): T.evaluate(0) => write its members one by one, or * before it
    => for i, j in T.grid(*A.shape): T.evaluate(0)
for i in range(4 / 2): T.evaluate(0) => convert it by T.Cast("int32", ...), or divide by //
    => for i in range(4 // 2): T.evaluate(0)
""")


@pytest.mark.parametrize(("written", "hint", "instead"), HINTS_OF_KERNELS)
def test_first_kernels_are_refused_with_what_works(written: str, hint: str, instead: str) -> None:
    with pytest.raises(RelaxpyError) as caught:
        from_source(KERNEL.format(written=written))
    assert caught.value.diagnostic.hint == hint
    from_source(KERNEL.format(written=instead))


@pytest.mark.parametrize(
    ("signature", "hint"),
    [
        ('A: T.Buffer("float32")', "the shape comes first, the dtype second"),
        ("A: T.Buffer(4, 4)", "dimensions are written in a tuple, as in (4, 4)"),
        ("A: list", 'annotate it, as in A: T.Buffer((4, 4), "float32"), a: T.handle or n: T.int32'),
    ],
)
def test_parameters_of_first_kernels(signature: str, hint: str) -> None:
    with pytest.raises(RelaxpyError) as caught:
        from_source(
            f"@T.prim_func\ndef f({signature}):\n    T.evaluate(0)\n", {"T": T, "list": list}
        )
    assert caught.value.diagnostic.hint == hint


@pytest.mark.parametrize(("name", "module"), [("I", "ir"), ("R", "relax"), ("T", "tir")])
def test_a_namespace_is_imported_from_where_the_error_says(name: str, module: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from relaxpy import {name}")
    assert f"write from relaxpy.script import {module} as {name}" in str(caught.value)
    exec(f"from relaxpy.script import {module} as {name}")


def test_a_shape_variable_in_quotes_is_to_be_declared() -> None:
    text = """
@R.function
def f(x: R.Tensor(("n", 4), "float32")):
    {}return R.zeros(({}, 4), "float32")
"""
    with pytest.raises(RelaxpyError) as caught:
        from_source(text.format("", '"n"'))
    assert caught.value.diagnostic.hint == "write n, after n = T.int64()"
    from_source(text.format("n = T.int64(); ", "n"))


def test_an_elif_has_an_else_and_several_results_are_a_tuple() -> None:
    text = """
@R.function
def f(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")){}:
    if c:
        y = R.exp(x)
    elif R.logical_not(c):
        y = R.log(x)
{}    return y
"""
    with pytest.raises(ParseError, match=r"an if in Relax has an else \[AST-13\]") as caught:
        from_source(text.format("", ""))
    assert caught.value.diagnostic.hint == "bind the same name in both branches"
    from_source(text.format("", "    else:\n        y = x\n"))
    with pytest.raises(ParseError, match="LEG-7") as caught:
        from_source(text.format(" -> (R.Tensor, R.Tensor)", "    else:\n        y = x\n"))
    assert caught.value.diagnostic.hint == "for several values write R.Tuple(..., ...)"


def test_datatypes_of_torch_are_strings_here() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(MisuseError, match="DT-1") as caught:
        R.Tensor((4,), torch.bfloat16)
    assert caught.value.diagnostic.hint == "write 'bfloat16'"


def test_a_block_is_no_loop() -> None:
    sch = tir.Schedule(
        from_source(KERNEL.format(written="with T.block('b'): A[0, 0] = T.float32(1)"))
    )
    with pytest.raises(MisuseError, match="expected a loop, found a block of the schedule"):
        sch.split(sch.get_block("b"), [2, 2])


def test_no_replacement_is_given_for_an_operator() -> None:
    assert not [name for name in _INSTEAD if operators_called(name)]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("x / n", 'x / T.cast(n, "float32")'),
        ("n * x", 'T.cast(n, "float32") * x'),
        ("x + R.prim_value(n)", 'x + R.prim_value(T.cast(n, "float32"))'),
    ],
)
def test_a_size_beside_a_tensor_is_converted_as_the_hint_says(written: str, instead: str) -> None:
    text = """
@R.function
def f(x: R.Tensor(("n", 4), "float32")):
    n = T.int64()
    return {}
"""
    with pytest.raises(RelaxpyError) as caught:
        from_source(text.format(written))
    assert caught.value.diagnostic.hint == 'convert the scalar: write T.cast(n, "float32") for n'
    found = from_source(text.format(instead))
    assert str(found.body.struct_info) == 'R.Tensor((n, 4), dtype="float32")'


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        (
            "np.exp(x)",
            "operators are functions of R, as in R.exp(x), in kernels of T, as in T.exp(x)",
        ),
        ("torch.relu(x)", "operators are functions of R, as in R.exp(x), in kernels of T"),
        (
            'R.add(x, metadata["relax.expr.Constant"][0])',
            "print the program by script(show_meta=True), which writes large constants, too",
        ),
        ("R.prim_value(round(x.shape[0]))", "write T.round(x.shape[0])"),
        ("R.prim_value(int(x.shape[0]))", 'write T.cast(x.shape[0], "int32")'),
        ("R.prim_value(abs(x.shape[0]))", "write T.abs(x.shape[0])"),
    ],
)
def test_names_of_other_libraries_and_of_python(written: str, hint: str) -> None:
    text = TEXT.replace("(4, 4)", '("n", 4)', 1)
    with pytest.raises(ParseError) as caught:
        from_source(text.format(written=written))
    assert caught.value.diagnostic.hint.startswith(hint)


def test_a_parameter_without_annotation_is_any_value() -> None:
    """DER-15: a parameter has its annotation as struct info, and Object when it has none."""

    @R.function
    def f(x):
        return x

    assert isinstance(f.params[0].struct_info, relax.ObjectStructInfo)
    assert f("anything") == "anything"


@pytest.mark.rule("SI-2")
def test_a_tensor_has_no_negative_dimension() -> None:
    for make in (
        lambda: R.Tensor((-1, 3)),
        lambda: R.Tensor(("n", -2), "float32"),
        lambda: relax.TensorStructInfo((3, -1), "float32"),
        lambda: relax.TensorStructInfo(relax.ShapeExpr([-1, 3]), "float32"),
        lambda: R.DTensor((-1, 3), "float32", "mesh[0]", "R"),
    ):
        with pytest.raises(
            MisuseError, match=r"a tensor has no dimension of -\d elements \[SI-2\]"
        ):
            make()
    with pytest.raises(ParseError, match=r"a tensor has no dimension of -1 elements \[SI-2\]") as e:
        from_source("@R.function\ndef f(x: R.Tensor((-1, 3))):\n    return x\n")
    assert (e.value.diagnostic.span.line, e.value.diagnostic.span.column) == (2, 20)


def test_a_shape_value_may_hold_what_reshape_works_out() -> None:
    @R.function
    def f(x: R.Tensor((2, 6), "float32")):
        return R.reshape(x, R.shape([-1, 3]))

    assert str(f.body.struct_info) == 'R.Tensor((4, 3), dtype="float32")'


@pytest.mark.parametrize(
    "line", ["y = [x, x][k]", "y = R.reshape(x, (k, 16))", "for i in range(k): x = R.exp(x)"]
)
def test_a_number_that_a_program_binds_is_known_outside_of_it(line: str) -> None:
    text = f"@R.function\ndef f(x: R.Tensor((4, 4))):\n    k = 1\n    {line}\n    return x\n"
    with pytest.raises(ParseError) as caught:
        from_source(text)
    assert caught.value.diagnostic.hint == (
        "a number that a program binds is a tensor: write the number here, or name it outside"
    )
    assert from_source(text.replace("    k = 1\n", ""), {"R": R, "k": 1})


def test_functions_of_torch_take_its_tensors() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ParseError, match="takes tensors of PyTorch, found Var 'x'") as caught:

        @R.function
        def f(x: R.Tensor((4, 4))):
            return torch.cat([x, x], dim=1)

    assert caught.value.diagnostic.hint == "write R.concat([x, x], axis=1)"
    with pytest.raises(ParseError, match="softmax takes tensors of PyTorch") as caught:

        @R.function
        def g(x: R.Tensor((4, 4))):
            return torch.nn.functional.softmax(x, dim=0)

    assert caught.value.diagnostic.hint == "write R.nn.softmax(x, axis=0)"


def test_functions_of_math_take_numbers() -> None:
    with pytest.raises(ParseError, match=r"math\.exp takes numbers, found Var 'x'") as caught:

        @R.function
        def f(x: R.Tensor((4, 4))):
            return math.exp(x)

    assert caught.value.diagnostic.hint == "write R.exp(x)"


def test_a_context_that_has_been_made_is_not_to_be_called() -> None:
    @contextlib.contextmanager
    def timed():
        yield

    with pytest.raises(ParseError, match=r"with takes R.dataflow\(\) in Relax") as caught:

        @R.function
        def f(x: R.Tensor((4, 4))):
            with timed():
                y = x
            return y

    assert caught.value.diagnostic.hint is None
