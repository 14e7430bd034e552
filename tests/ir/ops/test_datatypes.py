"""What an operator infers for datatypes is what its legalisation computes, equal or not.

`make test` draws some combinations of each number of datatypes; `make test-all` has all.
"""

import itertools

import pytest

from relaxpy.errors import RelaxpyError, StructInfoTypeError
from relaxpy.ir import DataType, IRModule, Op
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from tests.ir.ops.cases import CASES, Case
from tests.rows import draw

DTYPES = ("bool", "int8", "uint8", "int64", "float8_e4m3fn", "float16", "bfloat16", "float32")
FEW = ("bool", "int8", "float16", "float32")
BITS = {f"relax.{n}" for n in ("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor")}
BITS |= {"relax.left_shift", "relax.right_shift"}
LEGALISED = [c for c in CASES if registered_ops()[c.operator].record.legalize is not None]
FIRST = list({case.operator: case for case in reversed(LEGALISED)}.values())


def emit(builder: BlockBuilder, case: Case, combination: tuple[str, ...], name: str) -> bool:
    """Whether the operator takes operands of these datatypes; if so, a function of one call."""
    params = [
        rx.Var(f"x{k}", rx.TensorStructInfo(array.shape, DataType(dtype)))
        for k, (array, dtype) in enumerate(zip(case.inputs, combination, strict=True))
    ]
    try:
        call = case.call(*params)
    except RelaxpyError:
        return False
    with builder.function(name, params):
        with builder.dataflow():
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    return True


def result(mod: IRModule, name: str) -> rx.StructInfo:
    sinfo = mod[name].struct_info
    assert isinstance(sinfo, rx.FuncStructInfo)
    return sinfo.ret


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.operator)
def test_inference_and_legalisation_agree_on_datatypes(case, pytestconfig) -> None:
    dtypes = DTYPES if len(case.inputs) < 3 else FEW
    every = [*itertools.product(dtypes, repeat=len(case.inputs))]
    builder, floats = BlockBuilder(), 0
    kind = lambda c: f"{case.operator} {c[:1]} {len(set(c))}"  # noqa: E731
    for k, combination in enumerate(draw(pytestconfig, every, kind)):
        if case.operator in BITS and any(DataType(d).is_float for d in combination):
            # TVM infers it; only what computes it knows better.
            alone = BlockBuilder()
            if emit(alone, case, combination, "main"):
                floats += 1
                with pytest.raises(StructInfoTypeError, match="only integers have bits"):
                    LegalizeOps()(alone.finalize())
        else:
            emit(builder, case, combination, f"f{k}")
    assert bool(floats) == (case.operator in BITS)
    before = builder.finalize()
    after = LegalizeOps()(before)
    for var, func in before.functions.items():
        assert result(after, var.name_hint) == result(before, var.name_hint), func
        calls = [n for n in walk(after[var.name_hint]) if isinstance(n, rx.Call)]
        assert {c.op for c in calls} <= {Op("relax.call_tir")}, func
