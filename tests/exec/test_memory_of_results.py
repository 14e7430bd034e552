"""The memory of results is what the records of operators declare, and no pass takes it for other.

That operators without a row here return new memory is compared with what happens in
`tests/ir/ops/test_table.py`, over all of their rows.
"""

import random
from typing import Any

import numpy as np
import pytest

from relaxpy import IRModule
from relaxpy.errors import MisuseError
from relaxpy.exec.api.compile import compile
from relaxpy.ir.op_record import Memory
from relaxpy.ir.ops.definition.registry import register, registered_ops
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import memory_of
from relaxpy.relax import BlockBuilder, op
from relaxpy.script import from_source
from tests.exec.passes import PASSES
from tests.fuzz.seed import SEED
from tests.ir.ops.scratch import forgotten_operators
from tests.ir.relax.texts import module

TARGETS = ("native", "numpy", "reference")
FLOATS = rx.TensorStructInfo((3,), "float32")
KNOWN_AND_UNKNOWN = (
    FLOATS,
    rx.TensorStructInfo(dtype="float32"),
    rx.TensorStructInfo(dtype="void"),
)
Row = tuple[Memory, str]
#: How a call of each such operator on a tensor of three floats is written.
ROWS: dict[str, Row] = {
    "relax.builtin.stop_lift_params": (Memory.SAME, "R.builtin.stop_lift_params({})"),
    "relax.grad.end_checkpoint": (Memory.SAME, "R.grad.end_checkpoint({})"),
    "relax.grad.no_grad": (Memory.SAME, "R.grad.no_grad({})"),
    "relax.grad.start_checkpoint": (Memory.SAME, "R.grad.start_checkpoint({})"),
    "relax.hint_on_device": (Memory.SAME, "R.hint_on_device({}, R.device(1, 0))"),
    "relax.memory.ensure_zero_offset": (Memory.SAME, "R.memory.ensure_zero_offset({})"),
    "relax.memory.view": (Memory.VIEW, "R.memory.view({}, R.shape([3]))"),
    "relax.nn.dropout": (Memory.SAME, "R.nn.dropout({})[0]"),
    "relax.to_vdevice": (Memory.SAME, 'R.to_vdevice({}, "llvm")'),
    "relax.wrap_param": (Memory.SAME, 'R.wrap_param({}, dtype="float32")'),
    "relax.expand_dims": (Memory.COPY, "R.expand_dims({}, axis=[])"),
    "relax.flatten": (Memory.COPY, "R.flatten({})"),
    "relax.permute_dims": (Memory.COPY, "R.permute_dims({}, axes=[0])"),
    "relax.reshape": (Memory.COPY, "R.reshape({}, R.shape([3]))"),
    "relax.squeeze": (Memory.COPY, "R.squeeze({}, axis=[])"),
}
#: Why an operator that does not return new memory has no row.
WITHOUT_ROWS = {
    **dict.fromkeys(
        ("relax.memory.alloc_tensor", "relax.vm.alloc_tensor"), "its operand is not a tensor"
    ),
    "relax.make_closure": "its result is not a tensor",
    **dict.fromkeys(
        ("relax.dist.annotate_sharding", "relax.dist.redistribute"), "nothing evaluates it"
    ),
}


def test_operators_without_new_results_have_a_row() -> None:
    names = {name for name, op_def in registered_ops().items() if op_def.record.memory is not None}
    assert names == ROWS.keys() | WITHOUT_ROWS.keys()


def call_of(name: str, sinfo: rx.StructInfo) -> IRModule:
    text = ROWS[name][1].format("x")
    return module(f"""
    I.module_global_infos({{"vdevice": [I.vdevice("llvm")]}})

    def main(x: {sinfo}):
        y = {text}
        return y
    """)


@pytest.mark.rule("EV-16")
@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ROWS)
def test_a_result_lies_in_the_declared_memory(name: str, target: str) -> None:
    for sinfo in KNOWN_AND_UNKNOWN:
        mod = call_of(name, sinfo)
        values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
        [declared] = {m for m in map(memory_of, values) if m is not None}
        x = np.arange(3, dtype="float32")
        result = compile(mod, target=target)["main"](x)
        assert declared is ROWS[name][0]
        assert np.shares_memory(result, x) is not declared.is_new
        assert (result is x) is (declared is Memory.SAME)


def test_a_parameter_wrapped_in_another_datatype_is_new() -> None:
    x = rx.Var("x", FLOATS)
    assert memory_of(op.wrap_param(x, "float16")) is Memory.NEW


@pytest.mark.parametrize("target", TARGETS)
def test_every_tensor_may_be_both_operands_where_that_is_declared(target: str) -> None:
    names = [name for name, op_def in registered_ops().items() if op_def.record.takes_twice]
    assert names
    for name in names:
        x = rx.Var("x", rx.TensorStructInfo(dtype="void"))
        builder = BlockBuilder()
        with builder.function("main", [x]):
            builder.emit_func_output(registered_ops()[name].make(x, x))
        main = compile(builder.get(), target=target)["main"]
        for dtype in ("bool", "int8", "uint64", "float16", "float64"):
            assert main(np.ones((2, 1), dtype)).shape == (2, 1)


@pytest.mark.rule("EV-16")
def test_the_result_of_an_operator_of_a_user_may_be_its_operand() -> None:
    with forgotten_operators():

        @register("test.itself", pure=True, legalize=lambda builder, call: call.args[0])
        def itself(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
            return x

        x = rx.Var("x", FLOATS)
        assert memory_of(itself(x)) is Memory.ANY
        itself.op.extend(memory=Memory.NEW)
        assert memory_of(itself(x)) is Memory.NEW
        with pytest.raises(MisuseError, match="column memory is a Memory or a function, found 3"):
            itself.op.extend(memory=3)


#: Programs in which a mutation reaches a result of `{same}`, or must not, by what its memory is.
PROGRAMS = {
    "equal calls, one is mutated": """
        a{k} = R.exp(x)
        b{k} = {same(a{k})}
        c{k} = R.exp(x)
        d{k} = {same(c{k})}
        e{k} = R.call_tir_inplace(cls.bump, (b{k},), [0], R.Tensor((3,), "float32"))
        results: e{k}, d{k}, a{k}
    """,
    "a constant is mutated": """
        a{k} = R.const([1.0, 2.0, 3.0], "float32")
        b{k} = {same(a{k})}
        c{k} = R.call_tir_inplace(cls.bump, (b{k},), [0], R.Tensor((3,), "float32"))
        d{k} = {same(a{k})}
        e{k} = R.add(d{k}, x)
        results: c{k}, e{k}
    """,
    "one operand, two results": """
        a{k} = R.exp(x)
        b{k} = {same(a{k})}
        c{k} = {same(a{k})}
        d{k} = R.call_tir_inplace(cls.bump, (b{k},), [0], R.Tensor((3,), "float32"))
        results: d{k}, c{k}, a{k}
    """,
    "a copy of a result": """
        a{k} = R.exp(x)
        b{k} = {same(a{k})}
        c{k} = R.reshape(b{k}, R.shape([3]))
        d{k} = R.call_tir_inplace(cls.bump, (a{k},), [0], R.Tensor((3,), "float32"))
        results: d{k}, c{k}, b{k}
    """,
    "the operand is dead, the result is not": """
        a{k} = R.exp(x)
        b{k} = {same(a{k})}
        c{k} = R.add(a{k}, x)
        d{k} = R.nn.relu(c{k})
        e{k} = R.negative(b{k})
        results: d{k}, e{k}
    """,
    "a tuple of a result": """
        a{k} = R.exp(x)
        b{k} = {same(a{k})}
        t{k} = (b{k}, x)
        c{k} = R.multiply(a{k}, a{k})
        f{k} = t{k}[0]
        d{k} = R.subtract(f{k}, c{k})
        results: d{k}, c{k}
    """,
}
HEAD = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def bump(a: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.block("b"):
                vi = T.axis.spatial(3, i)
                a[vi] = a[vi] + T.float32(10)

    @R.function
    def main(x: R.Tensor((3,), "float32")):
        cls = Module
"""


def program(lines: str, *, dataflow: bool) -> IRModule:
    """The program once for each operator, one after the other."""
    body: list[str] = []
    results: list[str] = []
    of_one_device = [text for _, text in ROWS.values() if "llvm" not in text]
    for k, text in enumerate(of_one_device):
        for line in lines.strip().splitlines():
            line = line.strip().replace("{k}", str(k))
            head, is_result, names = line.partition("results: ")
            if is_result:
                results += names.split(", ")
                continue
            head, is_call, operand = line.partition("{same(")
            body.append(head + text.format(operand.removesuffix(")}")) if is_call else line)
    indent = " " * (12 if dataflow else 8)
    text = "".join(f"{indent}{line}\n" for line in body)
    if dataflow:
        text = f"        with R.dataflow():\n{text}{indent}R.output({', '.join(results)})\n"
    return from_source(f"{HEAD}{text}        return ({', '.join(results)},)\n")  # type: ignore[return-value]


SUBJECTS = {
    f"{name}{', in dataflow' * dataflow}": program(lines, dataflow=dataflow)
    for name, lines in PROGRAMS.items()
    for dataflow in (False, True)
}


def value_of(mod: IRModule, target: str = "reference") -> list[Any]:
    result = compile(mod, target=target)["main"](np.arange(3, dtype="float32"))
    return [np.asarray(field).tolist() for field in result]


@pytest.mark.rule("OPT-11", "EV-16")
def test_a_mutation_reaches_the_same_results_after_a_pass(request: pytest.FixtureRequest) -> None:
    before = {name: value_of(mod) for name, mod in SUBJECTS.items()}
    everything = request.config.getoption("--whole-table")
    count = len(SUBJECTS) if everything else 1
    wrong = [
        f"{name}: {subject}"
        for name in PASSES
        for subject in random.Random(f"{SEED} {name}").sample([*SUBJECTS], count)
        if value_of(PASSES[name](SUBJECTS[subject])) != before[subject]
    ]
    assert not wrong, "\n".join(wrong)
