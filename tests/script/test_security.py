"""Text that may be hostile: nothing of it runs, and reading it takes bounded work."""

import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from relaxpy import IRModule
from relaxpy.errors import ParseError, RelaxpyError, StructInfoError
from relaxpy.script import from_source, relax as R, tir as T
from tests.counting import calls

pytestmark = pytest.mark.timeout(60)  # what is refused is refused in bounded time

HEADER = '@R.function\ndef main(x: R.Tensor(("n", 4), "float32")):\n'


def refused(body: str, **names: object) -> str:
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    with pytest.raises(ParseError) as caught:
        from_source(f"{HEADER}{lines}\n    return x\n", **names)  # type: ignore[arg-type]
    return caught.value.diagnostic.message


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('touch /tmp/hacked')",
        "x.__class__.__base__.__subclasses__()",
        "(1).__class__",
        "''.__class__.__mro__",
        "R.__builtins__",
        "R.__dict__",
        "R._words",
        "R.annotations",
        "T.Any",
        "T._ops",
        "I._forms",
        "R.shape_of._function.__globals__",
        "R.shape_of.infer",
        "R.shape_of.op.set_attr('FPurity', True)",
        "R.function.__call__",
        "R.Tensor.info",
        "R.Tensor((4,)).shape",
        "T.Add.__mro__",
        "T.Add._make",
        "x.span.source.text",
        "x.struct_info.key",
        "x.script()",
        "open('/etc/passwd')",
        "eval('1')",
        "exec('1')",
        "compile('1', '', 'eval')",
        "getattr(x, '__class__')",
        "globals()",
        "vars(x)",
        "type(x)",
        "input()",
        "breakpoint()",
        "'{0.__class__}'.format(x)",
        "f'{x.__class__}'",
        "f'{x!r}'",
        "(lambda f: f.__globals__)(lambda: 0)",
        "[c for c in ().__class__.__bases__]",
        "max([x], key=x.script)",
        "R.macro(lambda v: v)",
        "R.function(lambda v: v)",
        "T.prim_func(lambda v: v)",
        "R.macro.dialect",
        "R.emit_te(open, x)",
        "R.emit_te(R.call_packed.__wrapped__, x)",
        "R.DynTensorType.__wrapped__",
        "R.DynTensorType.takes_arguments",
        "R.RuntimeDepShape.__call__",
        "I.vdevice('cuda').target",
        "R.Tensor[4]",
    ],
)
def test_nothing_but_the_language_is_in_reach(expression: str) -> None:
    message = refused(f"y = {expression}")
    assert "main" not in message
    assert not Path("/tmp/hacked").exists()


def test_decorators_defaults_and_annotations_are_read_by_the_same_rules() -> None:
    for text in (
        "@__import__('os').system('true')\ndef f(x: R.Tensor):\n    return x\n",
        "@R.function(pure=open('/etc/passwd'))\ndef f(x: R.Tensor):\n    return x\n",
        "@R.function\ndef f(x: R.Tensor = open('/etc/passwd')):\n    return x\n",
        "@R.function\ndef f(x: open('/etc/passwd')):\n    return x\n",
        "@R.function\ndef f(x: R.Tensor(('open(1)',))):\n    return x\n",
        "@R.function\ndef f(x: R.Tensor(('n.__class__', 'n'))):\n    return x\n",
        "@I.ir_module\nclass M:\n    y = open('/etc/passwd')\n",
        "@I.ir_module(metaclass=open('/etc/passwd'))\nclass M:\n    pass\n",
    ):
        with pytest.raises(ParseError):
            from_source(text)


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "from os import path",
        "from relaxpy.script import tir as T, os",
        "from relaxpy.script.parser import decorate",
        "from relaxpy import script",
        "from .script import tir",
        "print('hello')",
        "x = 1",
        "class A: pass",
        "for i in range(3): pass",
    ],
)
def test_a_text_holds_definitions_and_imports_of_the_namespaces(text: str) -> None:
    with pytest.raises(ParseError):
        from_source(f"{text}\n@R.function\ndef f(x: R.Tensor):\n    return x\n")


def test_methods_of_names_handed_in_are_out_of_reach() -> None:
    class Tool:
        value = 3

        def run(self) -> int:
            raise AssertionError("called")

    names = {"R": R, "T": T, "tool": Tool()}
    assert "cannot be used in text" in refused("y = tool.run()", extra_vars=names)
    assert "cannot be used in text" in refused("y = tool.value", extra_vars=names)


@pytest.mark.parametrize(
    "body",
    [
        "y = R.const(list(map(tools[0], [1])))",
        "y = R.const(sorted([1, 2], key=tools[0]))",
        "y = R.const(max(*[1, 2], **{'key': tools[0]}))",
        "z = T.index_map(tools[0])",
        "z = T.comm_reducer(tools[0], [T.float32(0)])",
        "y = R.emit_te(tools[0], x)",
        "y = R.const(list(map(tools[1], [1])))",
        "y = R.const(list(map(module, [1])))",
        "y = R.call_packed('f', x, key=tools[0])",
    ],
)
def test_functions_inside_of_what_is_handed_in_are_called_by_nothing(body: str) -> None:
    def tool(*args: object) -> object:
        raise AssertionError("called")

    names = {"R": R, "T": T, "tools": [tool, Path], "module": IRModule()}
    assert refused(body, extra_vars=names).startswith("only functions of I, R, T")


def test_functions_and_datatypes_that_are_handed_in_may_be_arguments() -> None:
    names = {"R": R, "half": lambda v: v / 2, "known": {"dtype": np.float16}}
    text = f"{HEADER}    return R.const(list(map(half, [1, 3])), known['dtype'])\n"
    assert 'R.const([0.5, 1.5], "float16")' in from_source(text, names).script()


@pytest.mark.parametrize(
    "body",
    [
        "y = 'a' * 10**10",
        "y = [0] * 10**10",
        "y = 10 ** 10 ** 10",
        "y = 2 ** -(10 ** 5)\nz = 9 ** 9 ** 9",
        "y = 1 << 10**10",
        "y = list(range(10**12))",
        "y = sum(range(10**12))",
        "y = sum(range(10**30))",
        "y = 1.5 in range(10**12)",
        "y = round(5, -(10**9))",
        "y = round(5, ndigits=-(10**9))",
        "s = 'a' * 300000\ny = str([s] * 100000)",
        "s = 'a' * 300000\ny = R.const({s: [s] * 100000})",
        "y = int('f' * 100000, 16)",
        "a = [0] * 100000\n" + "y = max(a)\n" * 40,
        "a = [0] * 100000\n" + "y = a == a\n" * 40,
        "y = [R.split(x, [0] * 1000) for i in range(1000)]",
        "y = {[1]}",
        "y = {[i] for i in range(3)}",
        "y = {[i]: i for i in range(3)}",
        "y = max(*range(10**8))",
        "y = [i for i in range(10**12)]",
        "y = [[[0] * 100000 for i in range(100000)] for j in range(1000)]",
        "y = (lambda f: f(f))(lambda f: f(f))",
        "y = f'{1:1000000000}'",
        "y = f'{1:.999999999f}'",
        "y = '%1000000000d' % 1",
        "y = int('9' * 5000)",
        "a = [0]\n" + "\n".join("a = ['', *a, *a]" for _ in range(40)),
        "a = ['']\n" + "\n".join("a = [a, a]" for _ in range(60)) + "\ny = str(a)",
        "n = T.int64()\n"
        + "\n".join(f"x = R.strided_slice(x, [0], [{k}], [n - {k}])" for k in range(40)),
        "y = (x, x)\n" + "\n".join("y = (y, y)" for _ in range(60)),
        "y: " + "(lambda t: R.Tuple(t, t))(" * 60 + "R.Object" + ")" * 60 + " = x",
        "y: " + "(lambda t: R.Callable((t,), t))(" * 60 + "R.Object" + ")" * 60 + " = x",
        "f = lambda v: v + v\nn = T.int64()\ny = " + "f(" * 40 + "n" + ")" * 40,
        "y = " + "-" * 900 + "1",
        "y = " + "-" * 5000 + "1",
        "y = " + "(" * 1000 + "1" + ")" * 1000,
        "y = x" + ".a" * 20000,
        "y = list(x)",
        "y = [i for i in x]",
        "y = R.tuple(*x)",
        "y = [*zip(x, x)]",
        "y = 3 in x",
        "for i in range(10**12): x = R.exp(x)",
        "for i in range(40000):\n    for j in range(40000): pass",
        "for i in [0] * 99999: pass",
        "y = R.shape(" + "+".join(["1"] * 50000) + ")",
    ],
)
def test_work_is_bounded(body: str) -> None:
    refused(body)


def test_sizes_that_no_tensor_has_are_refused() -> None:
    with pytest.raises(StructInfoError, match="at most 1024"):
        from_source(f"{HEADER}    return R.split(x, 10**9)\n")
    for rank in ("R.Tensor(ndim=10**9)", "R.Shape(ndim=10**9)", "R.DynTensorType(10**9)"):
        with pytest.raises(ParseError, match="a rank is at most 1024"):
            from_source(f"@R.function\ndef main(x: {rank}):\n    return x\n")


@pytest.mark.parametrize(
    "text", ["", " ", "\x00", "def f(:", "\ud800", "(" * 100000, "'" * 3, "\t\n"]
)
def test_text_that_is_no_program(text: str) -> None:
    with pytest.raises(ParseError):
        from_source(text)


@pytest.mark.parametrize(
    "size", ["n" + "+n" * 5000 + "+", "-" * 5000 + "n", "(" * 5000, "n" * 5000 + "+"]
)
def test_a_long_text_for_a_size_is_not_repeated_in_full(size: str) -> None:
    text = f"@R.function\ndef f(x: R.Tensor(('n',)), y: R.Tensor(({size!r},))):\n    return x\n"
    with pytest.raises(ParseError, match=r"is no expression|is nested too deeply") as caught:
        from_source(text)
    assert len(caught.value.diagnostic.message) < 100


def test_text_that_is_no_string() -> None:
    with pytest.raises(ParseError, match="a program is a string, found int"):
        from_source(5)  # type: ignore[arg-type]


VALID = """
@I.ir_module
class Module:
    @T.prim_func
    def f(a: T.handle, B: T.Buffer((16, 16), "float32"), m: T.int32) -> T.float32:
        T.func_attr({"tir.noalias": True})
        n = T.int32()
        A = T.match_buffer(a, (16, n), "float32", strides=[n, 1])
        for i, j in T.grid(16, 16):
            with T.block("C"):
                vi, vj = T.axis.remap("SR", [i, j])
                T.where(i < 3)
                with T.init():
                    B[vi, vj] = T.float32("inf")
                B[vi, vj] += A[vi, vj] * T.max(B[vj, vi], 1) if vi < 3 and not vj == 2 else 0
        for r in range(1, m + 2):
            y: T.int64 = T.cast(r, "int64")
            while y > 3:
                if r == 1:
                    break
                B[r, r:r + 4] = T.broadcast(1.0, 4)
        assert m > 0, "m"
        return B[0, 0]

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(ndim=2):
        n = T.int64()
        with R.dataflow():
            y = R.match_cast(x, R.Tensor((n, 4), "float32"))
            z = (y, R.shape([n, 2 * n]), [i for i in range(3)][0])
            R.output(y)
        if c:
            w = Module.main(y, c)
        else:
            w = x
        return w
"""
WORDS = [
    *("x", "n", "R", "T", "Module", "None", "True", "-1", "[]", "()", "{}", "1.5", "'a'", "*x"),
    *("lambda: 0", "R.Tensor", "T.int32", "T.int32()", "...", "range(3)", "T.grid", "slice", "1j"),
    *("not", "x[0:1]", "(x := 1)", "if x:", "else:", "2**70", "R.output(x)", "T.init()", "0", ":"),
]


@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@given(st.integers(0, 2**32))
def test_damaged_programs_are_refused_or_read_but_never_crash(seed: int) -> None:
    rng = random.Random(seed)
    words = VALID.replace("(", " ( ").replace(")", " ) ").split(" ")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(words))
        words[at] = rng.choice(["", rng.choice(WORDS), rng.choice(words), words[at] * 2])
    with suppress(RelaxpyError):
        from_source(" ".join(words), check_well_formed=False)


@given(st.text(max_size=60))
def test_any_text_is_refused_or_read(text: str) -> None:
    for whole in (text, f"{HEADER}    return {text}\n"):
        with suppress(RelaxpyError):
            from_source(whole)


def bundle(count: int) -> str:
    """A program that takes so many parameters in one tuple, and each of them out of it."""
    fields = ", ".join(f'R.Tensor(("n", "m + {k}"), "float32")' for k in range(count))
    lines = "".join(f"    y{k} = x[{k}]\n" for k in range(count))
    return (
        f'@R.function\ndef main(s: R.Shape(["n", "m"]), x: R.Tuple({fields})):\n{lines}'
        f"    return (x, {', '.join(f'y{k}' for k in range(count))})\n"
    )


def test_a_bundle_of_many_parameters_is_read() -> None:
    """Looking at a field is no work: only an operator derives fields. Names are found at once."""
    func = from_source(bundle(400))
    assert len(func.body.blocks[0].bindings) == 400
    few, many = (calls(lambda n=n: from_source(bundle(n))) for n in (50, 200))
    assert many < 5 * few
