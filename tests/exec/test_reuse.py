"""Outputs of kernels in the memory of inputs that die in the call, and where that must not be."""

import ast
import textwrap
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import MatchCastError, RuntimeCheckError
from relaxpy.exec.numpy import runtime
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.exec.numpy.emit.emitted import Unchecked
from relaxpy.exec.numpy.python_ast import load_text
from relaxpy.script import from_source
from tests.ir.passes.before_after import leaves
from tests.ir.relax.texts import module

VECTOR = 'R.Tensor((4,), "float32")'
X = np.array([1.0, 2.0, 3.0, 4.0], "float32")


def parse(body: str, params: str = f"x: {VECTOR}") -> IRModule:
    return module(f"@impure\ndef main({params}):\n" + textwrap.indent(body.strip(), "    "))


def main_of(mod: IRModule) -> tuple[Callable[..., Any], str]:
    """The function `main` with a kernel for each operator, and its statements as text."""
    executable = relaxpy.compile(mod, "numpy", relax_pipeline="legalize")
    tree = ast.parse(executable.source)
    [found] = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "main")
    return executable["main"], "\n".join(map(ast.unparse, found.body[1:]))


@pytest.mark.rule("OPT-10")
@pytest.mark.parametrize(
    ("body", "reused"),
    [
        ("a = R.exp(x)\nb = R.add(a, x)\nreturn b", "b = a"),
        ("a = R.exp(x)\nb = R.add(a, a)\nreturn b", "b = a"),
        ("a = R.exp(x)\nb = R.subtract(x, a)\nreturn b", "b = a"),
        ("a = R.exp(x)\nb = R.nn.softmax(a)\nreturn b", "b = a"),
        ("a = R.exp(x)\nb = R.clip(a, 2, 9)\nc = R.negative(b)\nreturn c", "c = b"),
        ("a = R.exp(x)\nb = R.where(R.greater(x, a), a, x)\nreturn b", "b = a"),
        ("a = R.split(x, 2)\nb = R.add(a[0], a[1])\nreturn b", "b = a_0"),
        ("a = R.split(x, 2)\nb = R.add(a[0], a[1])\nreturn (a[1], b)", "b = a_0"),
        ("a = R.exp(x)\nt = (x, (a, x))\nc = t[1]\nd = c[0]\nb = R.add(d, x)\nreturn b", "b = d"),
        ("a = R.exp(x)\nc = a\nb = R.add(a, c)\nreturn b", "b = a"),
        (f"a = R.exp(x)\nc = R.match_cast(a, {VECTOR})\nb = R.add(c, x)\nreturn b", "b = a"),
        ("a = R.exp(x)\nb = R.astype(a, 'float64')\nreturn b", None),
        ("a = R.exp(x)\nb = R.flip(a, axis=0)\nreturn b", None),
        ("a = R.exp(x)\nb = R.cumsum(a)\nreturn b", None),
    ],
)
def test_a_result_has_the_memory_of_a_dying_operand(body: str, reused: str | None) -> None:
    mod = parse(body)
    run, text = main_of(mod)
    if reused is None:
        assert " = a" not in text
    else:
        assert reused in text.splitlines()
    expected = relaxpy.compile(mod, target="reference")["main"](X.copy())
    x = X.copy()
    np.testing.assert_allclose(run(x), expected, rtol=1e-6)
    np.testing.assert_array_equal(x, X)


@pytest.mark.rule("OPT-11")
@pytest.mark.parametrize(
    "body",
    [
        "a = R.exp(x)\nb = R.add(a, x)\nreturn (a, b)",
        "a = R.exp(x)\nt = (a, x)\nb = R.add(a, x)\nreturn (t, b)",
        "a = R.exp(x)\nc = a\nb = R.add(a, x)\nreturn (c, b)",
        "a = R.split(x, 2)\nb = R.add(a[0], a[1])\nreturn (a, b)",
        "a = R.split(x, 2)\nc = a\nb = R.add(a[0], a[1])\nreturn (b, c[0])",
        "b = R.add(x, x)\nreturn (x, b)",
        "a = R.const([1.0, 2.0, 3.0, 4.0], 'float32')\nb = R.add(a, x)\nreturn b",
        """
a = R.exp(x)
_ = R.call_packed("keep", a, sinfo_args=R.Tuple())
b = R.add(a, x)
return b
""",
        """
a = R.call_packed("kept", x, sinfo_args=R.Tensor((4,), "float32"))
b = R.add(a, x)
return b
""",
        """
a = R.exp(x)
@R.function(pure=True)
def f(u: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    c = R.add(u, a)
    return c
b = R.add(a, x)
d = f(b)
return (b, d)
""",
        """
a = R.exp(x)
if R.less(R.sum(x), R.const(0.0)):
    b = R.add(a, x)
    c = b
else:
    c = R.add(a, a)
d = R.add(c, a)
return (c, d)
""",
    ],
)
def test_values_that_are_still_referred_to_keep_their_memory(body: str) -> None:
    kept: list[Any] = []
    relaxpy.register_func("keep", kept.append, override=True)
    stored = X.copy()
    relaxpy.register_func("kept", lambda x: stored, override=True)
    mod = parse(body)
    results = []
    for target in ("reference", "numpy"):
        x = X.copy()
        built = relaxpy.compile(mod, target=target)["main"]
        first = built(x)
        held = [v.copy() for v in leaves(first)]
        built(X + 1)
        for one, other in zip(leaves(first), held, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(x, X)
        results.append(leaves(first))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_array_equal(stored, X)
    for value, size in zip(kept, (0, 1, 0, 1), strict=False):
        np.testing.assert_allclose(value, np.exp(X + size), rtol=1e-6)


def test_branches_reuse_memory_of_their_own() -> None:
    mod = parse(
        """
if c:
    a = R.exp(x)
    b = R.add(a, x)
    r = b
else:
    r = x
d = R.negative(r)
return d
""",
        f'x: {VECTOR}, c: R.Tensor((), "bool")',
    )
    run, text = main_of(mod)
    assert "b = a" in text
    for flag, expected in ((True, -np.exp(X) - X), (False, -X)):
        x = X.copy()
        np.testing.assert_allclose(run(x, np.array(flag)), expected, rtol=1e-6)
        np.testing.assert_array_equal(x, X)


def test_symbolic_sizes_have_to_be_the_same() -> None:
    params = 'x: R.Tensor(("n", "m"), "float32"), y: R.Tensor((1, "m"), "float32")'
    _, text = main_of(parse("a = R.exp(x)\nb = R.add(a, y)\nreturn b", params))
    assert "b = a" in text
    run, text = main_of(parse("a = R.exp(y)\nb = R.add(a, x)\nreturn b", params))
    assert "b = a" not in text
    np.testing.assert_allclose(run(X[None], X[None]), [np.exp(X) + X], rtol=1e-6)


def test_a_chain_needs_the_memory_of_one_tensor() -> None:
    body = ["v0 = R.exp(x)", *(f"v{k + 1} = R.add(v{k}, x)" for k in range(20)), "return v20"]
    run, _ = main_of(parse("\n".join(body), 'x: R.Tensor((1000, 1000), "float32")'))
    x = np.zeros((1000, 1000), "float32")
    run(x)
    peaks = []
    for _ in range(3):  # whatever else runs in this process may allocate during one of them
        tracemalloc.start()
        try:
            result = run(x)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert result[0, 0] == 1
    assert min(peaks) < 1.1 * x.nbytes


def test_calls_at_the_same_time_have_memory_of_their_own() -> None:
    body = ["v0 = R.exp(x)", *(f"v{k + 1} = R.add(v{k}, x)" for k in range(50)), "return v50"]
    run, _ = main_of(parse("\n".join(body), 'x: R.Tensor(("n",), "float32")'))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda k: run(np.full(5000, k, "float32")), range(16)))
    for k, result in enumerate(results):
        np.testing.assert_allclose(result, np.exp(k) + 50 * k, rtol=1e-5)


def test_instruments_see_what_calls_got() -> None:
    virtual_machine = relaxpy.VirtualMachine(
        relaxpy.compile(parse("a = R.exp(x)\nb = R.add(a, x)\nreturn b"), relax_pipeline="legalize")
    )
    seen: list[Any] = []
    virtual_machine.set_instrument(lambda f, name, before, ret, *args: seen.append(args))
    virtual_machine["main"](X)
    *_, (a, _, b) = (args for args in seen if len(args) == 3)
    np.testing.assert_allclose(a, np.exp(X), rtol=1e-6)
    assert not np.shares_memory(a, b)


def store(value: str, target: str = "O") -> str:
    return f"for i, j in T.grid(n, 40):\n    {target}[i, j] = {value}"


def total(value: str, target: str = "S", combine: str = "+") -> str:
    start = f"for i in range(n):\n    {target}[i] = T.float32(0)\n"
    update = f"{target}[i] = {target}[i] {combine} {value}"
    return f"{start}for i, j in T.grid(n, 40):\n    {update}"


@pytest.mark.rule("OPT-10")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (store("A[i, j] + B[i, j]"), "AB"),
        (store("A[i, j] + T.exp(B[i, j])"), "B"),
        (store("T.exp(A[i, j]) + B[i, j]"), "A"),
        (store("T.exp(A[i, j]) + T.exp(B[i, j])"), "A"),
        (store("T.exp(A[i, j]) + T.exp(A[i, j] + B[i, j])"), ""),
        (store("T.exp(A[i, j]) * T.sqrt(T.Cast('float32', n)) + B[i, 0]"), "A"),
        (store("A[i, j] + A[i, 39 - j]"), ""),
        (store("A[n - 1 - i, j] + B[i, j]"), "B"),
        (store("A[i, j] + O[i, j] * B[i, j]"), ""),
        (store("T.if_then_else(A[i, j] > T.float32(0), B[i, j], T.float32(0))"), "A"),
        (store("T.Cast('float32', T.Cast('float64', A[i, j]))"), "A"),
        ("for i, j in T.grid(n, 40):\n    if B[i, j] > T.float32(0):\n"
         "        O[i, j] = A[i, j]", ""),
        (store("T.exp(A[i, j])", "L") + "\n" + store("L[i, 39 - j] + B[i, j]"), "AB"),
        (store("T.exp(A[i, j])", "L") + "\n" + store("L[i, j] + B[i, j]"), "A"),
        (store("T.exp(A[i, j])") + "\n" + store("O[i, j] + B[i, j]"), "A"),
        (store("T.exp(A[i, j])") + "\n" + store("O[i, j] + A[i, j]"), ""),
        (total("A[i, j]") + "\n" + store("A[i, j] / S[i] + B[i, j]"), "A"),
        (total("A[i, j] * B[i, j]") + "\n" + store("B[i, j] - S[i]"), "AB"),
        (total("A[i, j]") + "\n" + store("B[n - 1 - i, j] - S[i]"), "A"),
        ("for k in range(3):\n" + store("O[i, j] + A[i, j] * B[k, j]").replace("\n", "\n    ")
         .replace("for i", "    for i"), ""),
        ("for k in range(3):\n" + store("A[i, j] * B[k, j]").replace("\n", "\n    ")
         .replace("for i", "    for i"), ""),
        ("O[0, 0] = A[0, 0]\n" + store("B[i, j]"), ""),
    ],
)  # fmt: skip
def test_which_inputs_a_kernel_may_overwrite(body: str, expected: str) -> None:
    lines = "\n".join("    " + line for line in body.splitlines())
    kernel = from_source(f"""
@T.prim_func
def kernel(a: T.handle, b: T.handle, o: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 40), "float32")
    B = T.match_buffer(b, (n, 40), "float32")
    O = T.match_buffer(o, (n, 40), "float32")
    L = T.alloc_buffer((n, 40), "float32")
    S = T.alloc_buffer((n,), "float32")
{lines}
""")
    compiled = compile_kernel(kernel, "kernel")
    assert {"ABO"[n] + "ABO"[m] for n, m in compiled.overwritable} == {f"{x}O" for x in expected}
    work = compiled.unchecked
    assert isinstance(work, Unchecked)
    run = load_text([work.tree], "kernel", {"np": np, "rt": runtime})[1][work.name]
    for source, target in compiled.overwritable:
        for rows in (4, 5000):
            values = np.random.default_rng(0).uniform(0.5, 2, (3, rows, 40)).astype("float32")
            values[target] = values[source]
            apart = [*values.copy()]
            run(*apart, *[rows] * len(work.sizes))
            shared = [*values]
            shared[target] = shared[source]
            run(*shared, *[rows] * len(work.sizes))
            np.testing.assert_array_equal(shared[target], apart[target])


def text_of(mod: IRModule, pipeline: str | None = "legalize") -> str:
    source = relaxpy.compile(mod, "numpy", relax_pipeline=pipeline).source
    return source[source.index("\ndef main(") :]


@pytest.mark.rule("OPT-10")
def test_a_reshape_of_a_dying_tensor_is_a_view() -> None:
    mod = parse(
        "a = R.exp(x)\nb = R.reshape(a, (2, 2))\nc = R.add(b, b)\nd = R.reshape(c, (4,))\nreturn d"
    )
    run, text = main_of(mod)
    assert "b = a.reshape((2, 2))" in text
    assert "c = b" in text
    assert "d = c.reshape((4,))" in text
    np.testing.assert_allclose(run(X), 2 * np.exp(X), rtol=1e-6)


@pytest.mark.rule("EV-2")
@pytest.mark.parametrize(
    ("last", "is_copy"), [("return R.add(a, x)", False), ("return (a, R.add(a, x))", True)]
)
def test_a_literal_that_only_kernels_read_is_not_copied(last: str, is_copy: bool) -> None:
    run, text = main_of(parse(f"a = R.const([1.0, 2.0, 3.0, 4.0], 'float32')\n{last}"))
    assert ("const.copy()" in text) is is_copy
    for _ in range(2):
        *others, total = leaves(run(X))
        np.testing.assert_array_equal(total, [2, 4, 6, 8])
        for literal in others:
            np.testing.assert_array_equal(literal, X)
            literal += 1


@pytest.mark.rule("OPT-11")
@pytest.mark.parametrize(
    ("body", "is_view"),
    [
        ("b = R.reshape(x, (2, 2))\nc = R.add(b, b)\nreturn c", True),
        ("b = R.reshape(x, (2, 2))\nreturn b", False),
        ("b = R.reshape(x, (2, 2))\nc = R.add(b, b)\nreturn (b, c)", False),
        ("a = R.exp(x)\nb = R.reshape(a, (2, 2))\nc = R.exp(b)\nreturn (a, c)", True),
        (
            "a = R.exp(x)\nb = R.reshape(a, (2, 2))\nc = R.exp(b)\nd = R.add(a, x)\nreturn (c, d)",
            True,
        ),
        (
            "b = R.reshape(x, (2, 2))\n"
            "_ = R.call_packed('change', x, sinfo_args=R.Tuple())\n"
            "c = R.add(b, b)\nreturn c",
            False,
        ),
    ],
)
def test_a_reshape_that_mutation_could_reveal_is_a_copy(body: str, is_view: bool) -> None:
    def change(value: Any) -> None:
        value[:] = 7

    relaxpy.register_func("change", change, override=True)
    text = text_of(parse(body))
    assert ("reshape(" in text and "reshaped" not in text) is is_view
    expected = leaves(relaxpy.compile(parse(body), target="reference")["main"](X.copy()))
    for pipeline in ("default", "legalize", "default_build"):
        built = relaxpy.compile(parse(body), relax_pipeline=pipeline)["main"]
        for one, other in zip(leaves(built(X.copy())), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.rule("OPT-11")
def test_a_copy_that_two_variables_have_is_made_twice() -> None:
    mod = relax.transform.LegalizeOps()(
        parse("b = R.reshape(x, (2, 2))\nc = R.exp(b)\nreturn (b, c)")
    )
    main = mod["main"]
    [block] = main.body.blocks
    copy, last, *_ = block.bindings
    other = replace(copy, var=relax.Var("other", copy.var.struct_info))
    for bindings in ([other, copy, last], [copy, other, last]):
        body = replace(
            main.body,
            blocks=(replace(block, bindings=bindings),),
            body=relax.Tuple((other.var, last.var)),
        )
        mod["main"] = replace(main, body=body, ret_struct_info=None)
        x = X.copy()
        found, total = relaxpy.compile(mod, "numpy", relax_pipeline=None)["main"](x)
        assert not np.shares_memory(found, x)
        np.testing.assert_allclose(total, np.exp(found), rtol=1e-6)


def test_a_result_never_shares_memory_with_an_argument_that_was_reshaped() -> None:
    run, _ = main_of(parse("b = R.reshape(x, (2, 2))\nc = R.add(b, b)\nreturn c"))
    x = X.copy()
    assert not np.shares_memory(run(x), x)
    np.testing.assert_array_equal(x, X)


def test_lowered_programs_call_kernels_directly() -> None:
    symbolic = 'x: R.Tensor(("n", 2), "float32"), y: R.Tensor(("n", 2), "float32")'
    body = "a = R.add(x, y)\nb = R.reshape(a, (-1,))\nc = R.clip(b, 0, 1)\nd = R.exp(c)\nreturn d"
    text = text_of(parse(body, symbolic), "default_build")
    assert "add_unchecked(x, y, alloc)" in text
    assert "reshape_unchecked(alloc, alloc_1, n)" in text
    assert "invoke" not in text.replace("rx.invoke(shape_func_value, shape_heap)", "")
    mod = parse(body, symbolic)
    x = np.linspace(-1, 1, 10, dtype="float32").reshape(5, 2)
    found = relaxpy.compile(mod, relax_pipeline="default_build")["main"](x, x)
    np.testing.assert_allclose(found, np.exp(np.clip(2 * x, 0, 1)).ravel(), rtol=1e-6)


@pytest.mark.rule("OPT-13")
def test_checks_of_lowered_programs_run_unless_they_certainly_succeed() -> None:
    static = text_of(parse("a = R.exp(x)\nreturn a"), "default_build")
    assert "check_tensor_info" not in static
    assert "match_shape" not in static
    checked = """
_ = R.call_packed(
    "vm.builtin.check_tensor_info", x, R.prim_value(1), R.dtype("float32"), R.str("here "),
    sinfo_args=R.Tuple(),
)
_1 = R.call_packed(
    "vm.builtin.match_shape", x, R.null_value(), R.prim_value(1), R.prim_value(0),
    R.prim_value(4), R.str("here "), sinfo_args=R.Tuple(),
)
return x
"""
    for params, is_known in (
        (f"x: {VECTOR}", True),
        ('x: R.Tensor((5,), "float32")', False),
        ('x: R.Tensor(("n",), "float32")', False),
        ("x: R.Object", False),
    ):
        executable = relaxpy.compile(parse(checked, params), relax_pipeline=None)
        text = executable.source[executable.source.index("\ndef main(") :]
        assert ("packed_vm_builtin_match_shape" not in text) is is_known
        if not is_known:
            with pytest.raises(MatchCastError, match="here dimension 0 is 5, expected 4"):
                executable["main"](np.zeros(5, "float32"))
    with pytest.raises(MatchCastError, match="here expected a tensor of dtype float32"):
        executable["main"](np.zeros(4, "float64"))


INCREASE = """
@kernel
def increase(p: T.handle, q: T.handle):
    n = T.int64()
    A = T.match_buffer(p, (n,), "float32")
    B = T.match_buffer(q, (n,), "float32")
    for i in range(n):
        with T.block("increase"):
            vi = T.axis.spatial(n, i)
            A[vi] = A[vi] + B[vi]
"""


@pytest.mark.rule("OPT-13")
@pytest.mark.parametrize(
    ("params", "operands", "is_known"),
    [
        ("x: f32[n], y: f32[n]", "x, y", True),
        ("x: f32[n], y: f32[n]", "x, R.exp(x)", True),
        ("x: f32[n], y: f32[n]", "x, x", True),
        ("x: f32[n], y: f32[m]", "x, y", False),
        ('x: f32[n], y: R.Tensor("float32", ndim=1)', "x, y", False),
    ],
)
def test_operands_in_place_are_checked_by_the_kernel_alone_if_they_certainly_match(
    params: str, operands: str, is_known: bool
) -> None:
    call = f"R.call_tir_inplace(cls.increase, ({operands}), [0], f32[n])"
    mod = module(f"@impure\ndef main({params}):\n    z = {call}\n    return z\n{INCREASE}")
    assert ("call_of_increase" not in text_of(mod)) is is_known
    x, y = X.copy(), X[::-1].copy()
    results = [relaxpy.compile(mod, t)["main"](x.copy(), y) for t in ("reference", "numpy")]
    np.testing.assert_allclose(*results, rtol=1e-6)
    if not is_known:
        with pytest.raises(RuntimeCheckError, match=r"increase.*dimension 0 is 3, but n = 4"):
            relaxpy.compile(mod, "numpy")["main"](x, y[:3].copy())


@pytest.mark.rule("OPT-11")
@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize(
    "body",
    [
        "t = (a, x)\n{double}\nz = R.add(y, x)\nreturn (t, z)",
        "{double}\nz = R.add(y, x)\nreturn (a, z)",
        # A field of a tuple is read after a call in place of another name, and after new tensors.
        "t = (a, (x, a))\n{double}\nb = R.negative(y)\nz = R.add(b, x)\nreturn (R.exp(t[1][1]), z)",
        "t = (a, x)\n{double_field}\nb = R.negative(y)\nz = R.add(b, x)\nreturn (R.exp(t[0]), z)",
        "b = R.reshape(a, (2, 2))\n{double}\nz = R.add(b, b)\nreturn (a, z)",
        "b = R.reshape(x, (4,))\n{double_view}\nz = R.add(y, x)\nreturn (a, z)",
        # Tuples stand where a normal form has variables.
        "b = R.negative(((a, x), x)[0][0])\nz = R.add(b, ((x, a), a)[0][1])\nreturn (a, z)",
        "{double_nested}\nb = R.negative(y)\nz = R.add(b, x)\nreturn (((a, b), y)[0], z)",
        "y = R.call_dps_packed('reuse.fill', (((x, a), x)[0][0],), R.Tensor((4,), 'float32'))\n"
        "z = R.add(((y, y), y)[0][1], x)\nw = R.exp(z)\nreturn (a, w)",
        # A packed function keeps its output.
        "y = R.call_dps_packed('reuse.fill', (x,), out_sinfo=R.Tensor((4,), 'float32'))\n"
        "z = R.add(y, x)\nw = R.exp(z)\nreturn (a, w)",
    ],
)
def test_what_is_kept_besides_an_operand_is_not_overwritten(body: str, target: str) -> None:
    kept: list[Any] = []

    def fill(x: Any, y: Any) -> None:
        y[...] = x
        kept.append(y)

    relaxpy.register_func("reuse.fill", fill, override=True)
    call = "y = R.call_tir_inplace(cls.double, ({},), [0], R.Tensor((4,), 'float32'))"
    places = {"double": "a", "double_field": "t[0]", "double_nested": "((x, a), x)[0][1]"}
    places["double_view"] = "b"
    calls = {name: call.format(operand) for name, operand in places.items()}
    lines = textwrap.indent(body.format(**calls), " " * 8).lstrip()
    mod = from_source(f"""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(a: T.Buffer((4,), "float32")):
        for i in range(4):
            a[i] = a[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        R.func_attr({{"relax.force_pure": True}})
        cls = Module
        a = R.exp(x)
        {lines}
""")
    expected = [leaf.copy() for leaf in leaves(relaxpy.compile(mod, "reference")["main"](X.copy()))]
    kept.clear()
    run = relaxpy.compile(mod, target, relax_pipeline="legalize")["main"]
    for found, wanted in zip(leaves(run(X.copy())), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for array in kept:
        np.testing.assert_array_equal(array, X)
