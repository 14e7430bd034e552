"""A pass costs what it changes, and what occurs several times is computed once."""

from collections.abc import Callable

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.ir import ops as op
from relaxpy.ir.ops.definition.registry import OpDef
from relaxpy.ir.passes.fusion.grouping import FunctionGroup, _FunctionOf, group_bindings
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.rewrite.map_bindings import map_bindings
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from relaxpy.transform import PassContext, pass_instrument
from tests.counting import calls, calls_of

COUNT = 1000


def module(text: str) -> IRModule:
    found = from_source(text)
    assert isinstance(found, IRModule)
    return found


def chain(count: int, value: Callable[[int], str], names: str = "x") -> IRModule:
    lines = "".join(
        f"            {names}{k + 1} = {value(k).format(f'{names}{k}')}\n" for k in range(count)
    )
    return module(f"""
@I.ir_module
class Module:
    @R.function
    def main({names}0: R.Tensor((4, 4), "float32")):
        with R.dataflow():
{lines}            R.output({names}{count})
        return {names}{count}
""")


@pytest.mark.parametrize("passes", [relax.transform.Normalize(), relax.transform.LegalizeOps()])
def test_a_pass_that_changes_three_bindings_infers_three_operators(passes) -> None:
    before = passes(chain(COUNT, lambda k: "R.exp({})"))
    main = before["main"]
    assert isinstance(main, rx.Function)
    bindings = main.body.blocks[0].bindings
    chosen = {bindings[k] for k in (10, 500, 990)}

    def step(binding: rx.Binding, block: rx.BindingBlock) -> rx.Expr | None:
        operand = bindings[0].var
        assert operand is not None
        return op.abs(operand) if binding in chosen else None

    changed = before.clone()
    changed["main"] = map_bindings(main, step)
    after: list[IRModule] = []
    normalize = relax.transform.Normalize()
    assert calls_of(OpDef.infer, lambda: after.append(normalize(changed))) <= 10
    assert relax.analysis.well_formed(after[0])
    assert "R.abs" in after[0].script()


def test_a_kernel_that_is_replaced_is_checked_again() -> None:
    legal = relax.transform.LegalizeOps()(chain(3, lambda k: "R.exp({})"))
    other = relax.transform.LegalizeOps()(
        module("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((5, 4), "float32")):
        return R.exp(x)
""")
    )
    changed = legal.clone()
    changed["tir_exp"] = other["tir_exp"]
    with pytest.raises(relaxpy.errors.StructInfoError, match="OP-8"):
        relax.transform.Normalize()(changed)


def fused(mod: IRModule) -> IRModule:
    annotated = relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(mod))
    return relax.transform.FuseOps()(annotated)


def groups(second: str, outputs: str) -> IRModule:
    """Two groups, the first of which is `exp(x * w) + x`."""
    lines = "".join(f"            {line.strip()}\n" for line in second.split(";"))
    return module(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a0 = R.multiply(x, w)
            a1 = R.exp(a0)
            a2 = R.add(a1, x)
{lines}            R.output({outputs})
        return ({outputs})
""")


GROUPS = {
    "equal": ("b0 = R.multiply(w, x); b1 = R.exp(b0); b2 = R.add(b1, w)", 1),
    "another operator": ("b0 = R.multiply(w, x); b1 = R.abs(b0); b2 = R.add(b1, w)", 2),
    "the other operand": ("b0 = R.multiply(w, x); b1 = R.exp(b0); b2 = R.add(b1, x)", 2),
    "one operand twice": ("b0 = R.multiply(w, w); b1 = R.exp(b0); b2 = R.add(b1, w)", 2),
    "operands in another order": ("b0 = R.multiply(w, x); b1 = R.exp(b0); b2 = R.add(w, b1)", 2),
    "a constant": (
        'b0 = R.multiply(w, R.const(2.0, "float32")); b1 = R.exp(b0); b2 = R.add(b1, w)',
        2,
    ),
}


@pytest.mark.parametrize(("second", "count"), GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("outputs", ["a2, b2", "a2, b1, b2"])
def test_equal_groups_are_one_function(second: str, count: int, outputs: str) -> None:
    mod = groups(second, outputs)
    after = fused(mod)
    functions = [f for f in after.functions.values() if "Primitive" in f.attrs]
    assert len(functions) == (2 if "b1" in outputs else count)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((4, 4), "float32") for _ in range(2))
    expected = relaxpy.compile(mod, "reference")["main"](x, w)
    for found, value in zip(relaxpy.compile(after)["main"](x, w), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5)


def test_a_group_that_occurred_before_is_not_built_again() -> None:
    def program(layers: int) -> IRModule:
        kinds = ("R.exp(R.add({0}, {0}))", "R.sum({0}, axis=[0], keepdims=True) + {0}")
        mod = chain(2 * layers, lambda k: kinds[k % 2])
        return relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(mod))

    few, many = program(10), program(20)
    fuse = relax.transform.FuseOps()
    fuse(few)
    more = calls(lambda: fuse(many)) - calls(lambda: fuse(few))
    alone = calls(lambda: fuse(program(1)))
    assert more < 10 * alone / 2


@pytest.mark.parametrize("mark", ["text", True])
@pytest.mark.parametrize("are_joined", [False, True])
def test_equal_groups_are_built_once(mark: object, are_joined: bool) -> None:
    """Those of kernels that FuseTIR has joined, too: calls without attributes have no others."""
    kinds = ("R.exp(R.add({0}, {0}))", "R.sum({0}, axis=[0], keepdims=True) + {0}")
    mod = relax.transform.LegalizeOps()(chain(12, lambda k: kinds[k % 2]))
    if are_joined:
        mod = relax.transform.FuseTIR()(fused(mod))

    def group() -> None:
        group_bindings(
            mod,
            lambda block: {binding: FunctionGroup({"mark": mark}) for binding in block.bindings},
            lift_constants=True,
        )

    [block] = mod["main"].body.blocks
    names = {binding.value.args[0] for binding in block.bindings}
    assert calls_of(_FunctionOf.build, group) == len(names) < len(block.bindings)


def test_operators_are_lowered_once_for_all_modules() -> None:
    legalize = relax.transform.LegalizeOps()
    first, second = (chain(1, lambda k: "R.nn.softmax({0}, axis=0)") for _ in range(2))
    alone = legalize(first)
    shared = legalize(second)
    assert alone["softmax"] is shared["softmax"]


def test_names_in_kernels_do_not_depend_on_other_modules() -> None:
    legalize = relax.transform.LegalizeOps()
    legalize(chain(1, lambda k: "R.tanh({0})"))
    kernel = legalize(chain(1, lambda k: "R.tanh({0})", names="y"))["tir_tanh"]
    assert isinstance(kernel, PrimFunc)
    assert next(iter(kernel.buffer_map.values())).name == "y0"


def test_kernels_are_folded_without_passes() -> None:
    ran: list[str] = []

    @pass_instrument
    class Ran:
        def run_before_pass(self, mod: IRModule, info: relaxpy.transform.PassInfo) -> None:
            ran.append(info.name)

    mod = relax.transform.LegalizeOps()(
        module("""
@I.ir_module
class Module:
    @R.function
    def main():
        with R.dataflow():
            x = R.add(R.const([1.0, 2.0], "float32"), R.const([3.0, 4.0], "float32"))
            R.output(x)
        return x
""")
    )
    with PassContext(instruments=[Ran()]):
        after = relax.transform.FoldConstant()(mod)
    assert ran == ["FoldConstant"]
    assert "call_tir" not in after["main"].script()
    np.testing.assert_array_equal(relaxpy.compile(after)["main"](), [4.0, 6.0])
