"""Programs put together at random: whatever is wrong with them is said, and nothing else breaks."""

import warnings

from hypothesis import given, strategies as st

from relaxpy.errors import RelaxpyError
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.derive import normalize_module
from tests.ir.relax.graphs import bind, block, cast, dataflow, function, seq, size
from tests.ir.relax.infos import infos

SIZES = (size("n"), size("m"))


@st.composite
def variables(draw: st.DrawFn) -> list[rx.Var]:
    """A few variables to be bound and used anywhere, of any info or none."""
    kinds = st.sampled_from([rx.Var, rx.Var, rx.DataflowVar])
    given_infos = draw(st.lists(st.none() | infos(variables=SIZES), min_size=3, max_size=6))
    return [draw(kinds)(f"v{i}", info) for i, info in enumerate(given_infos)]


@st.composite
def expressions(draw: st.DrawFn, names: list[rx.Var], depth: int = 3) -> rx.Expr:
    """Any expression over these variables, in scope or not."""
    kind = draw(st.integers(0, 11 if depth else 3))

    def part() -> rx.Expr:
        return draw(expressions(names, depth - 1))

    match kind:
        case 0 | 1:
            return draw(st.sampled_from(names))
        case 2:
            return rx.ShapeExpr((draw(st.sampled_from(SIZES)), 2))  # type: ignore[arg-type]
        case 3:
            return draw(st.sampled_from([rx.const(True), rx.GlobalVar("f"), rx.ExternFunc("g")]))
        case 4:
            return rx.Tuple((part(), part()))
        case 5:
            return rx.TupleGetItem(rx.Tuple((part(), part())), draw(st.integers(0, 1)))
        case 6:
            return rx.If(part(), part(), part())
        case 7:
            params = draw(st.lists(st.sampled_from(names), max_size=2))
            ret = draw(st.none() | infos(variables=SIZES))
            return function(params, part(), ret, is_pure=draw(st.booleans()))
        case 8:
            return draw(sequences(names, depth - 1))
        case 9:
            name = draw(st.sampled_from(["relax.shape_of", "relax.call_tir", "relax.print", "no"]))
            given_infos = draw(st.lists(infos(variables=SIZES), max_size=1))
            args = draw(st.lists(expressions(names, depth - 1), max_size=2))
            return rx.Call(Op(name), tuple(args), sinfo_args=tuple(given_infos))
        case 10:
            return rx.Call(part(), (Op("relax.print"),))  # type: ignore[arg-type]
        case _:
            return rx.Call(part(), tuple(draw(st.lists(expressions(names, depth - 1), max_size=2))))


@st.composite
def sequences(draw: st.DrawFn, names: list[rx.Var], depth: int) -> rx.SeqExpr:
    """Blocks of both kinds with bindings and casts."""
    blocks = []
    for _ in range(draw(st.integers(0, 2))):
        bindings: list[rx.Binding] = []
        for _ in range(draw(st.integers(0, 3))):
            target = draw(st.sampled_from(names))
            value = draw(expressions(names, depth))
            if draw(st.booleans()):
                bindings.append(bind(target, value))
            else:
                bound = draw(st.none() | st.just(target))
                bindings.append(cast(bound, value, draw(infos(variables=SIZES))))
        blocks.append(draw(st.sampled_from([block, dataflow]))(*bindings))
    return seq(*blocks, draw(expressions(names, depth)))


@st.composite
def modules(draw: st.DrawFn) -> IRModule:
    names = draw(variables())
    mod = IRModule()
    for name in ("f", "main"):
        params = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
        mod[name] = function(params, draw(sequences(names, 2)), global_symbol=name)
    return mod


@given(modules())
def test_faults_are_found_and_nothing_breaks(mod: IRModule) -> None:
    found = check_well_formed(mod)
    assert all(d.rule for d in found)
    assert all(str(d) for d in found)
    normal = normalized(mod)
    assert found or isinstance(normal, IRModule)
    if not found and isinstance(normal, IRModule):
        assert check_well_formed(normal, normal_form=True) == []
        assert normalize_module(normal) is normal


def normalized(mod: IRModule) -> IRModule | RelaxpyError:
    """The module in normal form, or why it has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return normalize_module(mod)
        except RelaxpyError as error:
            return error
