"""DataflowUseInplaceCalls and its analyses, as TVM's, and what aliasing a mutation would reveal."""

import textwrap

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import MisuseError
from relaxpy.ir import Op, assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.testing.transform import (
    dataflow_alias_analysis,
    dataflow_inplace_analysis,
    dataflow_liveness_analysis,
    dataflow_single_inplace_call,
)
from relaxpy.relax.transform import DataflowUseInplaceCalls
from relaxpy.script import from_source
from relaxpy.tvm.relax.aliases import inplace_candidates
from tests.counting import calls
from tests.ir.passes.before_after import agree, check, stays
from tests.ir.relax.texts import graph, module

X = np.arange(-2, 2, dtype="float32")


def parse(body: str, params: str = "x: f32[4], y: f32[4]", output: str = "z") -> IRModule:
    """A module of `main` with these bindings in a dataflow block, and a function `same`."""
    lines = textwrap.indent(body.strip(), "        ")
    return module(f"""
@private
def same(x: R.Tensor) -> R.Tensor:
    return x

def main({params}):
    with R.dataflow():
{lines}
        R.output({output})
    return {output.partition(",")[0]}
""")


def dataflow(mod: IRModule) -> rx.DataflowBlock:
    main = mod["main"]
    assert isinstance(main, rx.Function)
    [block] = [b for b in main.body.blocks if isinstance(b, rx.DataflowBlock)]
    return block


def params(mod: IRModule) -> list[rx.Var]:
    main = mod["main"]
    assert isinstance(main, rx.Function)
    return list(main.params)


def aliases(mod: IRModule) -> tuple[dict[str, set[int]], dict[int, list[set[int]]]]:
    of, fields = dataflow_alias_analysis(dataflow(mod), params(mod))
    return {var.name_hint: numbers for var, numbers in of.items()}, fields


def in_place(mod: IRModule) -> list[str]:
    """The variables of the calls in place after the pass."""
    bindings = dataflow(DataflowUseInplaceCalls()(mod)).bindings
    return [
        b.var.name_hint
        for b in bindings
        if b.var and isinstance(b.value, rx.Call) and b.value.op == Op.get("relax.call_tir_inplace")
    ]


def test_ranges_begin_and_end_outside_of_the_block() -> None:
    mod = parse(
        """
c = R.exp(x)
z = R.add(x, c)
q = R.multiply(z, c)
p = R.add(z, q)
n = R.multiply(p, p)
""",
        output="n, p",
    )
    ranges = dataflow_liveness_analysis(dataflow(mod))
    assert {var.name_hint: found for var, found in ranges.items()} == {
        "x": (-1, 5),
        "c": (0, 2),
        "z": (1, 3),
        "q": (2, 3),
        "p": (3, 5),
        "n": (4, 5),
    }


def test_taking_a_field_does_not_use_a_tuple() -> None:
    mod = parse("t = R.split(x, 2)\nu = R.exp(x)\nz = t[0]")
    ranges = {v.name_hint: r for v, r in dataflow_liveness_analysis(dataflow(mod)).items()}
    assert ranges["t"] == (0, 0)


def test_computed_values_are_new_and_names_share_them() -> None:
    assert aliases(parse("v = x\nz0 = R.add(v, v)\nz = z0", "x: f32[4]")) == (
        {"x": {0}, "v": {0}, "z0": {1}, "z": {1}},
        {},
    )


def test_fields_of_tuples_are_followed() -> None:
    mod = parse(
        """
y = R.exp(x)
t = (x, y)
a = t[0]
b = t[1]
u = t
c = u[1]
s = R.split(c, 2)
d = s[1]
z = d
""",
        "x: f32[4]",
    )
    of, fields = aliases(mod)
    assert of == {
        "x": {0},
        "y": {1},
        "t": {2},
        "u": {2},
        "a": {0},
        "b": {1},
        "c": {1},
        "s": {3},
        "d": {5},
        "z": {5},
    }
    assert fields == {2: [{0}, {1}], 3: [{4}, {5}]}


def test_a_called_function_returns_something_new_or_an_argument() -> None:
    mod = parse(
        """
v = cls.same(x)
w = cls.same(v)
m = R.exp(x)
n = R.abs(x)
t = (m, n)
a = R.call_pure_packed("test.same", t, sinfo_args=R.Tuple(R.Tensor, R.Tensor))
z = a[1]
""",
        "x: f32[4]",
    )
    of, fields = aliases(mod)
    assert of == {
        "x": {0},
        "v": {0, 1},
        "w": {0, 1, 2},
        "m": {3},
        "n": {4},
        "t": {5},
        "a": {3, 4, 5, 6, 7, 8},
        "z": {3, 4, 5, 6, 7, 8},
    }
    assert fields == {5: [{3}, {4}], 6: [{3, 4, 5, 6, 7, 8}] * 2}


def test_values_from_before_the_block_are_external() -> None:
    mod = from_source("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    y = R.exp(x)
    t = (y, y)
    with R.dataflow():
        z = y
        a = R.exp(x)
        u = (z, a)
        b = u[0]
        c = t[1]
        w = R.add(b, c)
        R.output(w)
    return w
""")
    of, fields = aliases(IRModule.from_expr(mod))
    assert of == {"x": {0}, "z": {-1}, "a": {1}, "u": {2}, "b": {-1}, "c": {-1}, "w": {3}}
    assert fields == {2: [{-1}, {1}]}


def test_views_and_outputs_in_place_are_the_same_memory() -> None:
    mod = parse(
        """
a = R.exp(x)
b = R.reshape(a, (2, 2))
c = R.permute_dims(b, (1, 0))
d = R.add(a, a)
z = R.grad.no_grad(d)
""",
        "x: f32[4]",
    )
    assert aliases(mod)[0] == {"x": {0}, "a": {1}, "b": {1}, "c": {1}, "d": {2}, "z": {2}}
    after = DataflowUseInplaceCalls()(parse("a = R.exp(x)\nb = R.add(a, x)\nz = R.abs(b)"))
    of = aliases(after)[0]
    assert of["b"] == of["a"] != of["z"]


@pytest.mark.rule("OPT-11")
def test_operands_that_are_used_later_by_any_name_are_no_candidates() -> None:
    mod = parse("""
a = R.add(x, y)
p = R.add(a, a)
r = p
m = R.multiply(p, p)
n = R.add(m, r)
z = R.subtract(n, m)
""")
    expected = [(1, {0, 1}), (4, {1}), (5, {0, 1})]
    assert dataflow_inplace_analysis(dataflow(mod), params(mod), mod) == (expected, expected)


def test_a_larger_operand_is_a_candidate_by_size_only() -> None:
    mod = parse(
        "a = R.exp(x)\nz = R.add(R.reshape(a, (2, 3)), y)",
        'x: R.Tensor((2, 3, 1), "float32"), y: R.Tensor((1, 3), "float32")',
    )
    assert dataflow_inplace_analysis(dataflow(mod), params(mod), mod) == ([(2, {0})], [(2, {0})])
    smaller = parse(
        "a = R.exp(x)\nb = R.exp(y)\nz = R.add(a, b)",
        'x: R.Tensor((3, 1), "float32"), y: R.Tensor((1, 3), "float32")',
    )
    assert dataflow_inplace_analysis(dataflow(smaller), params(smaller), smaller) == ([], [])
    longer = parse(
        "a = R.exp(x)\nz = R.add(a, y)",
        'x: R.Tensor((1, 4), "float32"), y: R.Tensor((4,), "float32")',
    )
    block = rx.DataflowBlock(
        tuple(
            b if k == 0 else rx.VarBinding(b.var, flat_sum(b.value))  # type: ignore[arg-type]
            for k, b in enumerate(dataflow(longer).bindings)
        )
    )
    assert dataflow_inplace_analysis(block, params(longer), longer) == ([(1, {0})], [])


def flat_sum(call: rx.Call) -> rx.Call:
    """The call, declared to return a vector, which has as many elements."""
    sinfo = rx.TensorStructInfo(rx.ShapeExpr([4]), "float32")
    return rx.Call(call.op, call.args, call.attrs, call.sinfo_args, struct_info=sinfo)


@pytest.mark.rule("OPT-11")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = R.exp(x)\nz = R.add(a, x)", ["z"]),
        ("z = R.add(x, x)", []),  # the caller has x
        ("a = R.exp(x)\nt = (a, x)\nb = R.add(a, x)\nz = R.add(b, t[0])", ["z"]),
        (
            "a = R.exp(x)\nt = (a, x)\nu = (t, t)\nb = R.add(a, x)\nv = u[1]\nz = R.add(b, v[0])",
            ["z"],
        ),
        ("a = R.exp(x)\nb = cls.same(a)\nc = R.add(a, x)\nz = (b, c)", []),
        ("a = R.exp(x)\nb = cls.same(a)\nc = R.add(b, x)\nz = c", []),
        ("a = cls.same(x)\nz = R.relu(a)", []),
        ("a = R.exp(x)\nb = R.reshape(a, (4,))\nc = R.add(a, x)\nz = (b, c)", []),
        ("a = R.exp(x)\nb = R.reshape(a, (4,))\nz = R.add(a, b)", []),
        ("a = R.exp(x)\nb = R.reshape(a, (4,))\nz = R.add(b, x)", ["z"]),
        ("a = R.grad.no_grad(x)\nz = R.add(a, a)", []),
        ("a = R.call_pure_packed('test.same', x, sinfo_args=R.Tensor((4,)))\nz = R.relu(a)", []),
        ("a = R.exp(x)\nb = R.match_cast(a, R.Tensor((4,), 'float32'))\nz = R.add(a, b)", []),
        ("a = R.exp(x)\nb = R.match_cast(a, R.Tensor((4,), 'float32'))\nz = R.add(b, x)", ["z"]),
        ("a = R.exp(x)\nz = R.add(a, R.const(1.0))", ["z"]),
        ("a = R.exp(x)\nz = R.subtract(R.const(1.0), a)", ["z"]),
        ("a = R.exp(x)\nb = R.exp(a)\nz = R.power(b, a)", []),  # not an operator that is done so
    ],
)
def test_memory_that_something_else_refers_to_is_not_overwritten(body, expected) -> None:
    mod = parse(body.replace("R.relu", "R.nn.relu"))
    relaxpy.register_func("test.same", lambda x: x, override=True, pure=True)
    assert in_place(mod) == expected
    agree(mod, DataflowUseInplaceCalls()(mod), X, X)


Before = graph("""
def main(x: f32[2, 3], y: f32[1, 3]):
    z = R.add(x, y)
    a = R.add(z, y)
    q = R.multiply(a, y)
    r = R.subtract(y, y)
    s = R.subtract(r, r)
    m = R.multiply(q, s)
    return m
""")

After = graph("""
@kernel64
def add_inplace(a: f32[2, 3], b: f32[1, 3]):
    T.func_attr({"tir.noalias": True})
    for i, j in SS(2, 3, "T_add"):
        a[vi, vj] = a[vi, vj] + b[0, vj]

@kernel64
def multiply_inplace(a: f32[2, 3], b: f32[1, 3]):
    T.func_attr({"tir.noalias": True})
    for i, j in SS(2, 3, "T_multiply"):
        a[vi, vj] = a[vi, vj] * b[0, vj]

@kernel64
def subtract_inplace(a: f32[1, 3], b: f32[1, 3]):
    T.func_attr({"tir.noalias": True})
    for i, j in SS(1, 3, "T_subtract"):
        b[vi, vj] = a[vi, vj] - b[vi, vj]

def main(x: f32[2, 3], y: f32[1, 3]):
    z = R.add(x, y)
    a = R.call_tir_inplace(cls.add_inplace, (z, y), inplace_indices=[0], out_sinfo=f32[2, 3])
    q = R.call_tir_inplace(cls.multiply_inplace, (a, y), inplace_indices=[0], out_sinfo=f32[2, 3])
    r = R.subtract(y, y)
    s = R.call_tir_inplace(cls.subtract_inplace, (r, r), inplace_indices=[1], out_sinfo=f32[1, 3])
    m = R.call_tir_inplace(cls.multiply_inplace, (q, s), inplace_indices=[0], out_sinfo=f32[2, 3])
    return m
""")


def test_kernels_overwrite_operands_and_are_shared() -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    check(DataflowUseInplaceCalls(), Before, After, x, x[:1])
    assert relaxpy.compile(After)["main"](x, x[:1]).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_symbolic_shapes_have_to_be_equal() -> None:
    matrix = 'x: R.Tensor(("a", "b"), "float32"), y: R.Tensor(("a", "b"), "float32")'
    body = "c = R.add(x, y)\nd = R.add(c, y)\nz = R.subtract(d, d)"
    assert in_place(parse(body, matrix)) == ["d", "z"]
    other = 'x: R.Tensor(("a", "b"), "float32"), y: R.Tensor(("c", "d"), "float32")'
    stays(DataflowUseInplaceCalls(), parse("c = R.add(x, y)\nz = R.add(c, y)", other))


def test_branches_and_functions_have_blocks_of_their_own() -> None:
    mod = from_source("""
@R.function
def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
    @R.function
    def local(u: R.Tensor((4,), "float32")):
        with R.dataflow():
            v = R.exp(u)
            w = R.add(v, u)
            R.output(w)
        return w
    if c:
        with R.dataflow():
            a = R.exp(x)
            b = R.multiply(a, a)
            R.output(b)
        r = local(b)
    else:
        r = x
    return r
""")
    after = DataflowUseInplaceCalls()(IRModule.from_expr(mod))
    assert str(after).count("call_tir_inplace") == 2
    built = relaxpy.compile(after)["main"]
    for flag in (True, False):
        expected = np.exp(np.exp(X) ** 2) + np.exp(X) ** 2 if flag else X
        np.testing.assert_allclose(built(X, np.array(flag)), expected, rtol=1e-5)


def test_one_call_is_done_in_place_as_requested() -> None:
    mod = parse("a = R.add(x, y)\nz = R.nn.silu(a)")
    add, silu = (b.value for b in dataflow(mod).bindings)
    assert isinstance(add, rx.Call)
    assert isinstance(silu, rx.Call)
    call, result = dataflow_single_inplace_call(mod, add, [0])
    assert call.attrs["inplace_indices"] == (0,)
    operands = call.args[1]
    assert isinstance(operands, rx.Tuple)
    assert operands.fields == add.args
    assert_structural_equal(result["add_inplace"], KERNELS["add"])
    _, result = dataflow_single_inplace_call(mod, silu, [0])
    assert_structural_equal(result["silu_inplace"], KERNELS["silu"])
    assert "add_inplace" not in mod.functions_by_name


KERNELS = module("""
@kernel64
def add(a: f32[4], b: f32[4]):
    T.func_attr({"tir.noalias": True})
    for i in S(4, "T_add"):
        a[vi] = a[vi] + b[vi]

@kernel64
def silu(a: f32[4]):
    T.func_attr({"tir.noalias": True})
    c = T.alloc_buffer((4,), "float32")
    for i in S(4, "compute"):
        c[vi] = T.sigmoid(a[vi])
    for i in S(4, "T_multiply"):
        a[vi] = a[vi] * c[vi]

def main(x: f32[4]):
    return x
""")


def test_misuse_is_explained() -> None:
    mod = parse("a = R.add(x, y)\nz = R.exp(a)")
    call = dataflow(mod).bindings[0].value
    with pytest.raises(MisuseError, match=r"index of one of 2 operands, found \[2\]"):
        dataflow_single_inplace_call(mod, call, [2])  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="expected a dataflow block, found IRModule"):
        dataflow_alias_analysis(mod, [])  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="expected a variable, found int"):
        dataflow_inplace_analysis(dataflow(mod), [1], mod)  # type: ignore[list-item]
    with pytest.raises(MisuseError, match="expected a call, found Var"):
        dataflow_single_inplace_call(mod, params(mod)[0], [0])  # type: ignore[arg-type]


def test_candidates_are_found_in_linear_time() -> None:
    def block(count: int) -> rx.DataflowBlock:
        lines = ["v0 = R.exp(x)"]
        for k in range(count):
            lines += [f"t{k} = (v{k}, v{k})", f"u{k} = cls.same(t{k}[0])", f"w{k} = R.add(u{k}, x)"]
            lines += [f"v{k + 1} = R.multiply(w{k}, x)"]
        return dataflow(parse("\n".join([*lines, f"z = v{count}"])))

    small, large = block(20), block(200)
    counts = [calls(lambda b=b: inplace_candidates(b, ())) for b in (small, large)]
    assert counts[1] < 14 * counts[0]
