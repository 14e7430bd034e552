"""Kernels written as short texts, and what each of them does on both targets.

`A: f32[n, 4]` is a buffer of a handle that the kernel matches, with `n` of datatype int64; other
dimensions and scalars are written as ever. A loop `for i, k in SR(n, m):` is a block of the axes
`vi`, spatial, and `vk`, reduced, whose name is that of the buffer that it stores to first. Comments
after a kernel say what it is called with, and what is known of the program that NumPy runs:

    # args: n=3, at=np.array([0, 2])    arguments and dimensions; other arguments are drawn
    # args: n=(0, 5, 9), at=[3, 1]      a call for each of these; lists become arrays
    # args: n=0 -> index 0 is outside   a call that ends in this error
    # memory: 5: m[:4], m[1:]           arguments within the memory of five numbers
    # methods: elementwise; scatter     how the statements run
    # reason: calls test.halve          why the only statement runs one element at a time
    # whole: yes                        no statement runs in a loop
    # source: np.add(A, rt.float32[1.0], out=B)     what the source has
    # not source: rt.take               what it has not
    # ends: np.add(A, rt.float32[1.0], out=B)       what the last line of the source is
    # body: y[...] = x[2:6]             what the source has after the check of memory that overlaps
    # rtol: 1e-4                        instead of 1e-5
    # native: runs                      native code leaves no call without an error to NumPy
    # tree: in registers: S             what the loops of native code have, and
    # not tree: each j                  what they have not
    # with F: f32 | i8                  words of the text and what stands for them, as in `variants`

`f32(x)` is a number, or a conversion. Native code runs on arrays before pages that it must not
access.
"""

import ast
import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.exec.reference.kernel import run_prim_func
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from tests.exec.loops.support import check, function_of, rendered
from tests.exec.native.claims import calls_left_to_numpy
from tests.guard_pages import guarded
from tests.ir.relax.texts import DTYPES, Blocks
from tests.rows import variants

rng = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def odd(*shape: int, dtype: str = "f32") -> np.ndarray:
    """Numbers, among which are infinities, NaN and zeros of both signs if they are floats."""
    array = (rng.standard_normal(shape) * 4).astype(DataType(DTYPES[dtype]).numpy())
    if array.dtype.kind == "f":
        array.flat[7::29] = np.nan
        array.flat[9::31] = -np.inf
        array.flat[11::37] = np.inf
        array.flat[4::13] = 0.0
        array.flat[5::17] = -0.0
    return array


def numbers(*shape: int) -> np.ndarray:
    """1, 2, 3 and so on."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def written_out(text: str) -> str:
    """A short text as a text of TVMScript."""
    [definition] = ast.parse(text).body
    assert isinstance(definition, ast.FunctionDef)
    _LongNames().visit(definition)
    _match_buffers(definition)
    return f"@T.prim_func\n{ast.unparse(ast.fix_missing_locations(definition))}"


def kernel(text: str) -> PrimFunc:
    """The kernel of a short text."""
    func = from_source(written_out(text))
    assert isinstance(func, PrimFunc)
    return func


def native(text: str) -> Callable[..., Any]:
    """The kernel of a short text, compiled to native code."""
    executable = relaxpy.compile(kernel(text), "native")
    return executable[executable.function_names[0]]


def placed(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run on copies of contiguous arrays before pages that it must not access."""

    def run_placed(*args: Any) -> Any:
        is_copied = [isinstance(a, np.ndarray) and a.flags.c_contiguous for a in args]
        copies = [
            guarded(a, at_end=True) if copied else a
            for a, copied in zip(args, is_copied, strict=True)
        ]
        try:
            return run(*copies)
        finally:
            for array, copy in zip(args, copies, strict=True):
                if copy is not array and array.flags.writeable:
                    array[...] = copy

    return run_placed


def run_row(row: str) -> None:
    """Run a kernel on both targets and by the reference, and check what comments say of it.

    Errors:
        AssertionError: it is not so.
    """
    for text in variants(row):
        try:
            _run_variant(text)
        except BaseException as error:
            error.add_note(text)
            raise


def _run_variant(row: str) -> None:
    code, *comments = re.split(r"^# (?=[a-z ]+: )", row.replace("\n#   ", " "), flags=re.MULTILINE)
    func = kernel(code)
    said = [tuple(comment.strip().split(": ", 1)) for comment in comments]
    report = compile_kernel(func, "kernel")
    with calls_left_to_numpy() as left:
        executable = relaxpy.compile(func, "native")
    [name] = executable.function_names
    is_native = ("native", "runs") in said
    _run_calls(func, said, [function_of(report), executable[name]], left if is_native else [])
    source, found = rendered(report), [entry.method for entry in report.report]
    for key, value in said:
        match key:
            case "methods":
                assert "; ".join(found) == value
            case "whole":
                assert not [m for m in found if "loop" in m or "element" in m.split()]
            case "reason":
                assert [entry.reason for entry in report.report] == [value]
            case "source":
                assert value in source
            case "ends":
                assert source.endswith(f" {value}\n")
            case "body":
                assert value in source.rpartition("return\n")[2]
            case "not source":
                assert value not in source
            case "tree":
                assert value in executable.kernel_source(name, "tree")
            case "not tree":
                assert value not in executable.kernel_source(name, "tree")
            case "native":
                assert all(row.method.startswith("native") for row in executable.report())
            case _:
                assert key in ("args", "memory", "rtol"), key


def _run_calls(
    func: PrimFunc,
    said: list[tuple[str, ...]],
    compiled: list[Callable[..., Any]],
    left: list[tuple[object, ...]],
) -> None:
    rtol = next((float(value) for key, value in said if key == "rtol"), 1e-5)
    *others, native_code = compiled
    calls = [(key, value) for key, value in said if key in ("args", "memory")]
    for key, call in calls or [("args", "")]:
        call, _, error = call.partition("-> ")
        if key == "memory":
            size, _, parts = call.partition(": ")
            _run_within(func, int(size), eval(f"lambda m: ({parts},)"), compiled)
        elif error:
            for run in (*compiled, lambda *args: run_prim_func(func, args)):
                with pytest.raises(RuntimeCheckError, match=error):
                    run(*arguments(func, eval(f"dict({call})")))
        else:
            count = len(left)
            for given in _each(eval(f"dict({call})")):
                args = arguments(func, given)
                runs = [*others, placed(native_code)]
                check(func, *args, rtol=rtol, atol=rtol / 10, compiled=runs)
            assert len(left) == count


def _each(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each of the sizes that are given, with each of the others."""
    values = [value if isinstance(value, tuple) else (value,) for value in given.values()]
    for chosen in product(*values):
        yield dict(zip(given, chosen, strict=True))


def _run_within(
    func: PrimFunc,
    size: int,
    parts: Callable[[np.ndarray], tuple[Any, ...]],
    compiled: list[Callable[..., Any]],
) -> None:
    """Run a kernel on parts of one memory."""
    expected = numbers(size) / 4
    run_prim_func(func, parts(expected))
    for run in compiled:
        memory = numbers(size) / 4
        run(*parts(memory))
        np.testing.assert_allclose(memory, expected, rtol=1e-5)


def arguments(func: PrimFunc, given: dict[str, Any]) -> list[Any]:
    """The arguments with these names, and others of the shapes that follow from dimensions."""

    def drawn() -> Iterator[Any]:
        for param in func.params:
            buffer = func.buffer_of(param)
            name = param.name if buffer is None else buffer.name
            if buffer is None or not isinstance(given.get(name, []), list | range):
                yield given[name]
                continue
            shape = [eval(str(size), {**given, "T": _Plain}) for size in buffer.shape]
            dtype = buffer.dtype.numpy()
            if isinstance(given.get(name), list | range):
                yield np.array(given[name], dtype).reshape(shape)
                continue
            numbers = rng.integers(0 if dtype.kind in "ub" else -4, 5, shape)
            yield (rng.standard_normal(shape) if dtype.kind not in "iub" else numbers).astype(dtype)

    return list(drawn())


class _Plain:
    int64 = int


class _LongNames(Blocks, ast.NodeTransformer):
    """Loops that say the kinds of their axes become blocks, and names of datatypes long ones."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in DTYPES:
            node.func = ast.parse(f"T.{DTYPES[node.func.id]}", mode="eval").body
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(DTYPES.get(node.value, node.value))


def _match_buffers(definition: ast.FunctionDef) -> None:
    """Parameters `f32[n, 4]` become buffers, those of unknown dimensions of handles."""
    scalars = {a.arg for a in definition.args.args if not isinstance(a.annotation, ast.Subscript)}
    dims: dict[str, None] = {}
    matched = []
    for arg in definition.args.args:
        match arg.annotation:
            case ast.Subscript(value=ast.Name(id=short), slice=slice) if short in DTYPES:
                shape = slice.elts if isinstance(slice, ast.Tuple) else [slice]
            case _:
                continue
        used = [n.id for d in shape for n in ast.walk(d) if isinstance(n, ast.Name) and n.id != "T"]
        sizes = f"({''.join(f'{ast.unparse(d)}, ' for d in shape)})"
        if used:
            dims |= dict.fromkeys(name for name in used if name not in scalars)
            matched.append(f"{arg.arg} = T.match_buffer({arg.arg}_, {sizes}, '{DTYPES[short]}')")
            arg.arg += "_"
            declared = "T.handle"
        else:
            declared = f"T.Buffer({sizes}, '{DTYPES[short]}')"
        arg.annotation = ast.parse(declared, mode="eval").body
    lines = [f"{name} = T.int64()" for name in dims] + matched
    definition.body[:0] = ast.parse("\n".join(lines)).body
