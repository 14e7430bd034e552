"""The driver of passes over bindings: what it visits, what it keeps, what it puts together."""

import numpy as np
import pytest
from typing_extensions import override

from relaxpy.exec.api.compile import compile
from relaxpy.ir import IRModule, Op, assert_structural_equal, ops as op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.derive import normalize_function
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, map_bindings
from relaxpy.script import from_source
from tests.counting import calls

PROGRAM = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            a = R.abs(x)
            b = R.exp(a)
            R.output(b)
        if c:
            d = R.abs(b)
            e = R.exp(d)
        else:
            e = R.exp(b)

        @R.function
        def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            f = R.abs(y)
            return f

        g = inner(e)
        return g
"""


@pytest.fixture
def main() -> rx.Function:
    mod = from_source(PROGRAM)
    assert isinstance(mod, IRModule)
    func = mod["main"]
    assert isinstance(func, rx.Function)
    return func


def is_call(binding: rx.Binding, name: str) -> bool:
    return isinstance(binding.value, rx.Call) and binding.value.op == Op.get(name)


def names(seq: rx.SeqExpr) -> list[list[str]]:
    """The names that each block binds."""
    return [[b.var.name_hint if b.var else "" for b in block.bindings] for block in seq.blocks]


def parsed(lines: str) -> rx.Function:
    text = "".join(f"    {line}\n" for line in lines.strip().splitlines())
    func = from_source(
        '@R.function\ndef main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):\n' + text
    )
    assert isinstance(func, rx.Function)
    return func


def test_bindings_come_in_the_order_of_evaluation_with_the_block_they_stand_in(main) -> None:
    seen: list[tuple[str, bool]] = []

    def note(binding: rx.Binding, block: rx.BindingBlock) -> None:
        assert any(b.var is binding.var for b in block.bindings)
        assert binding.var is not None
        seen.append((binding.var.name_hint, isinstance(block, rx.DataflowBlock)))

    assert map_bindings(main, note) is main
    assert [name for name, _ in seen] == ["a", "b", "d", "e", "e", "e", "f", "inner", "g"]
    assert [name for name, dataflow in seen if dataflow] == ["a", "b"]


def abs_to_negative(binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
    if not is_call(binding, "relax.abs"):
        return None
    assert isinstance(binding.value, rx.Call)
    return op.negative(*binding.value.args)


def test_branches_and_functions_are_rewritten_and_the_rest_is_shared(main: rx.Function) -> None:
    after = map_bindings(main, abs_to_negative)
    expected = from_source(PROGRAM.replace("R.abs", "R.negative"))
    assert isinstance(expected, IRModule)
    assert_structural_equal(normalize_function(after), expected["main"])
    olds, news = ([b for block in f.body.blocks for b in block.bindings] for f in (main, after))
    shared = [old.var.name_hint for old, new in zip(olds, news, strict=True) if old is new]  # type: ignore[union-attr]
    assert shared == ["b", "g"]


def test_spans_stay(main: rx.Function) -> None:
    after = map_bindings(main, abs_to_negative)
    assert (after.span, after.body.span) == (main.span, main.body.span)
    for old, new in zip(main.body.blocks, after.body.blocks, strict=True):
        assert new.span == old.span
        assert [b.span for b in new.bindings] == [b.span for b in old.bindings]


def test_struct_info_is_kept_where_that_of_the_result_is(main: rx.Function) -> None:
    after = map_bindings(main, abs_to_negative)
    assert after is not main
    assert after.struct_info is main.struct_info
    [choice] = (
        b.value for block in after.body.blocks for b in block.bindings if isinstance(b.value, rx.If)
    )
    assert choice.struct_info is not None
    assert check_well_formed(normalize_function(after)) == []


@pytest.mark.rule("NF-8", "NF-9", "NF-11")
def test_a_binding_may_be_dropped_and_its_neighbours_joined() -> None:
    func = parsed("""
a = R.abs(x)
with R.dataflow():
    b = R.exp(x)
    R.output(b)
d = R.negative(a)
return d
""")
    assert names(func.body) == [["a"], ["b"], ["d"]]
    after = map_bindings(func, lambda b, _: () if is_call(b, "relax.exp") else None)
    assert names(after.body) == [["a", "d"]]


def test_several_bindings_may_come_in_a_block_of_their_own() -> None:
    func = parsed("""
with R.dataflow():
    a = R.abs(x)
    b = R.exp(a)
    d = R.negative(b)
    R.output(d, b, a)
return d
""")

    def outside(binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        if not is_call(binding, "relax.exp"):
            return None
        extra = rx.Var("extra", binding.value.struct_info)
        copy = rx.VarBinding(extra, binding.value)
        return [rx.BindingBlock((copy, rx.VarBinding(binding.var, extra)))]  # type: ignore[arg-type]

    after = map_bindings(func, outside)
    assert names(after.body) == [["a"], ["extra", "b"], ["d"]]
    assert [isinstance(block, rx.DataflowBlock) for block in after.body.blocks] == [
        *(True, False, True)
    ]
    assert check_well_formed(normalize_function(after)) == []


class DoubleNegative(BindingRewriter):
    """-(-x) -> x."""

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        if not is_call(binding, "relax.negative"):
            return None
        assert isinstance(binding.value, rx.Call)
        inner = self.value_of(binding.value.args[0])
        negative = Op.get("relax.negative")
        return inner.args[0] if isinstance(inner, rx.Call) and inner.op == negative else None


def test_a_leaf_takes_the_place_of_the_variable_from_then_on() -> None:
    func = parsed("""
a = R.negative(x)
b = R.negative(a)
d = R.negative(b)
e = R.negative(d)
if c:
    f = R.add(e, a)
else:
    f = R.add(b, b)
return (f, e)
""")
    expected = parsed("""
a = R.negative(x)
d = R.negative(x)
if c:
    f = R.add(x, a)
else:
    f = R.add(x, x)
return (f, x)
""")
    after = normalize_function(DoubleNegative().expr(func))
    assert_structural_equal(after, normalize_function(expected))
    assert check_well_formed(after) == []
    data = np.array([-1, 0, 2, 5], "float32")
    for condition in (np.array(True), np.array(False)):
        olds, news = (
            compile(IRModule({"main": f}))["main"](data, condition) for f in (func, after)
        )
        for old, new in zip(olds, news, strict=True):
            np.testing.assert_array_equal(old, new)


def test_what_is_derived_from_an_operand_that_changes_is_dropped() -> None:
    func = parsed("""
a = R.negative(x)
b = R.negative(a)
d = R.exp(b)
e = R.exp(a)
return (d, e)
""")
    [block] = DoubleNegative().expr(func).body.blocks
    sinfos = {b.var.name_hint: b.value.struct_info for b in block.bindings if b.var}
    assert [name for name, sinfo in sinfos.items() if sinfo is None] == ["d"]


@pytest.mark.rule("SC-7")
def test_a_variable_that_outlives_the_block_stays_bound() -> None:
    func = parsed("""
with R.dataflow():
    lv = R.exp(x)
    a = R.negative(lv)
    b = R.negative(a)
    R.output(a, b)
d = R.negative(a)
return (b, d)
""")
    after = normalize_function(DoubleNegative().expr(func))
    assert check_well_formed(after) == []
    first, second = after.body.blocks
    assert [b.var.name_hint for b in first.bindings if b.var] == ["lv", "a", "b"]
    assert first.bindings[2].value is first.bindings[0].var
    assert second is func.body.blocks[1]


def test_a_cast_keeps_its_check() -> None:
    func = parsed("""
n = T.int64()
y = R.match_cast(x, R.Tensor((n,), "float32"))
return y
""")
    after = map_bindings(func, lambda binding, _: rx.Var("other", binding.value.struct_info))
    [block] = after.body.blocks
    [binding] = block.bindings
    assert isinstance(binding, rx.MatchCast)
    assert binding.value is not func.params[0]


def chain(count: int) -> rx.Function:
    lines = [f"y{i} = R.negative({f'y{i - 1}' if i else 'x'})" for i in range(count)]
    return parsed("\n".join([*lines, f"return y{count - 1}"]))


def drop_all(func: rx.Function) -> rx.Function:
    return map_bindings(func, lambda binding, block: ())


def keep_all(func: rx.Function) -> rx.Function:
    return map_bindings(func, abs_to_negative)


def cancel(func: rx.Function) -> rx.Function:
    return DoubleNegative().expr(func)


@pytest.mark.parametrize("rewrite", [drop_all, keep_all, cancel])
def test_work_grows_with_the_number_of_bindings(rewrite) -> None:
    work = [calls(lambda func=func: rewrite(func)) for func in (chain(100), chain(1000))]  # type: ignore[misc]
    assert work[1] < 11 * work[0]


def test_thousands_of_bindings_take_no_recursion() -> None:
    func = chain(4_000)
    after = DoubleNegative().expr(func)
    assert sum(len(block.bindings) for block in after.body.blocks) == 2_000
    assert map_bindings(func, abs_to_negative) is func
