"""Where a fault of a program is reported: at the innermost position that its nodes know."""

from dataclasses import replace

import pytest

from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo, Placement
from relaxpy.ir.tir import expr as tir
from tests.ir.relax import graphs, sinfos
from tests.ir.relax.graphs import at, function, seq, size
from tests.ir.relax.sinfos import Object, func, tensor, tuple_of
from tests.rows import table

N = size("n")
MESH, SPLIT = DeviceMesh((2,), (0, 1)), Placement.from_text("S[0]")
SEVEN, ZERO = tir.IntImm("int64", 7), tir.IntImm("int64", 0)


def places(program: rx.Function) -> list[tuple[str | None, int | None]]:
    """The rule and the line of each fault."""
    found = check_well_formed(program, check_struct_info=False)
    return [(d.rule, d.span and d.span.line) for d in found]


def var(name: str, sinfo: rx.StructInfo | None = None, line: int | None = None) -> rx.Var:
    return rx.Var(name, sinfo, span=at(line))


def main(
    body: rx.Expr, *params: rx.Var, ret: rx.StructInfo | None = None, line: int | None = 1
) -> rx.Function:
    return replace(function([*params], body, ret), span=at(line))


def bound(
    target: rx.Var | None,
    value: rx.Expr,
    line: int | None = None,
    cast: rx.StructInfo | None = None,
) -> rx.BindingBlock:
    span = at(line)
    if cast is not None:
        return rx.BindingBlock([rx.MatchCast(target, value, cast, span=span)])
    assert target is not None
    return rx.BindingBlock([rx.VarBinding(target, value, span=span)])


def located(sinfo: rx.StructInfo, line: int | None) -> rx.StructInfo:
    return replace(sinfo, span=at(line))  # type: ignore[call-arg]


UNIT = rx.Tuple(())
WRONG_RANK = rx.TensorStructInfo((2, 3), "float32", ndim=3)  # type: ignore[arg-type]


def call(*args: rx.Expr, line: int | None, sinfo: rx.StructInfo | None = None) -> rx.Call:
    sinfos = () if sinfo is None else (sinfo,)
    return rx.Call(rx.ExternFunc("f"), args, sinfo_args=sinfos, span=at(line))


#: What is wrong : the rules : positions of nodes, innermost first => the program with them.
FAULTS = table(
    """
the annotation of a parameter : WF-10 WF-14d : sinfo, param, func
    => main(UNIT, var("p", located(WRONG_RANK, sinfo), param), line=func)
a size in the annotation of a parameter : WF-6a : sinfo, param, func
    => main(UNIT, var("p", located(tensor(N * 2), sinfo), param), line=func)
a parameter in a function in a tuple in an annotation : WF-10 WF-14d
    : sinfo, outer, outermost, param
    => main(UNIT, var("p", located(tuple_of(located(func(located(WRONG_RANK, sinfo), ret=Object),
    outer)), outermost), param))
a result in a return annotation : WF-14d : sinfo, outer, line
    => main(UNIT, ret=located(func(ret=located(WRONG_RANK, sinfo)), outer), line=line)
what a tensor on many devices is : WF-10 WF-14d : sinfo, outer, line
    => main(UNIT, var("p", located(DTensorStructInfo(located(WRONG_RANK, sinfo), MESH, SPLIT),
    outer), line))
a field in what a cast says : WF-5b : sinfo, outer, line
    => main(seq(bound(None, UNIT, line, located(tuple_of(located(tensor(N * 2), sinfo)), outer)),
    UNIT))
a return annotation : WF-14d : sinfo, func => main(UNIT, ret=located(WRONG_RANK, sinfo), line=func)
the annotation of a variable : WF-10 WF-14d : sinfo, target, binding, func
    => main(seq(bound(var("y", located(WRONG_RANK, sinfo), target), UNIT, binding), UNIT),
    line=func)
what a cast says : WF-5b : sinfo, binding, func
    => main(seq(bound(None, UNIT, binding, located(tensor(N * 2), sinfo)), UNIT), line=func)
what an argument of a call says : WF-14d : sinfo, value, binding, func
    => main(seq(bound(var("y"), call(line=value, sinfo=located(WRONG_RANK, sinfo)), binding),
    UNIT), line=func)
a variable as shape : WF-2a WF-14b : sinfo, param, func
    => main(UNIT, var("p", rx.TensorStructInfo(var("s", shape(2)), "float32", span=at(sinfo)),
    param), line=func)
a variable in a call : WF-2a : value, binding, func
    => main(seq(bound(var("y"), call(var("v"), line=value), binding), UNIT), line=func)
a variable in a result : WF-2a : body, func
    => main(rx.SeqExpr((), var("v"), span=at(body)), line=func)
a size in a shape : WF-5a : value, outer, binding, func
    => main(seq(bound(var("y"), call(rx.ShapeExpr((N,), span=at(value)), line=outer), binding),
    UNIT), line=func)
a size in a scalar : WF-5a WF-18 : value, binding, func
    => main(seq(bound(var("y"), rx.PrimValue(N, span=at(value)), binding), UNIT), line=func)
text in a scalar : WF-18 : value, binding, func
    => main(seq(bound(var("y"), rx.PrimValue(tir.StringImm("s"), struct_info=Object,
    span=at(value)), binding), UNIT), line=func)
a division by zero : PX-3 : value, binding, func
    => main(seq(bound(var("y"), rx.ShapeExpr((tir.FloorDiv(SEVEN, ZERO),), span=at(value)),
    binding), UNIT), line=func)
an operator in a tuple : WF-9 : value, binding, func
    => main(seq(bound(var("y"), rx.Tuple([Op("relax.add")], span=at(value)), binding), UNIT),
    line=func)
an operator as the tuple of a field : WF-9 : value, binding, func
    => main(seq(bound(var("y"), rx.TupleGetItem(rx.Tuple([Op("relax.add")]), 0, span=at(value)),
    binding), UNIT), line=func)
a dataflow variable as parameter : WF-1a : param, func
    => main(UNIT, rx.DataflowVar("p", Object, span=at(param)), line=func)
a dataflow variable in an ordinary block : WF-1a : binding, value
    => main(seq(bound(rx.DataflowVar("y"), call(line=value), binding), UNIT))
a variable bound again : WF-2b : target, binding, func
    => main(seq(bound(same := var("y", None, target), UNIT, 9), bound(same, UNIT, binding), UNIT),
    line=func)
a parameter that stands twice : WF-2b : param, func
    => main(UNIT, same := var("p", Object, param), same, line=func)
what a condition uses : WF-2a : value, binding, func
    => main(seq(bound(var("y"), rx.If(var("c", BOOL), UNIT, UNIT, span=at(value)), binding), UNIT),
    line=func)
what a branch uses : WF-2a : branch, value, func
    => main(rx.If(rx.const(True, "bool"), rx.SeqExpr((), var("v"), span=at(branch)), UNIT,
    span=at(value)), line=func)
"""
)


@pytest.mark.parametrize(
    ("rules", "nodes", "program"), [pytest.param(*r, id=k) for k, *r in FAULTS]
)
def test_a_fault_is_reported_at_the_innermost_known_position(rules, nodes, program) -> None:
    make = eval(f"lambda {nodes}: {program}", vars(graphs) | vars(sinfos) | globals())
    count = make.__code__.co_argcount
    for known in range(count):
        lines = [None] * known + list(range(known + 1, count + 1))
        assert places(make(*lines)) == [(rule, known + 1) for rule in rules.split()]


@pytest.mark.rule("WF-14d")
def test_a_fault_of_an_annotation_names_what_is_annotated() -> None:
    u, callee = var("u", Object), var("callee", Object)
    cases = {
        "p": main(UNIT, var("p", WRONG_RANK)),
        "y": main(seq(bound(var("y", WRONG_RANK), UNIT), UNIT)),
        "the function": main(UNIT, ret=WRONG_RANK),
        "cast": main(seq(bound(var("cast"), u, cast=WRONG_RANK), UNIT), u),
        "this": main(seq(bound(None, u, cast=WRONG_RANK), UNIT), u),
        "f": main(call(line=None, sinfo=WRONG_RANK)),
        "callee": main(rx.Call(callee, (), sinfo_args=(WRONG_RANK,)), callee),
        "relax.add": main(rx.Call(Op("relax.add"), (), sinfo_args=(WRONG_RANK,))),
        "symbol": main(UNIT, ret=WRONG_RANK).with_attr("global_symbol", "symbol"),
    }
    for name, program in cases.items():
        *_, found = check_well_formed(program, check_struct_info=False)
        assert found.message.startswith(f"the annotation of {name} gives a tensor 2 dimensions")


@pytest.mark.rule("NF-2", "NF-8", "NF-11", "NF-12", "WF-23")
def test_what_keeps_a_program_from_normal_form_is_shown_where_it_stands() -> None:
    def shown(*blocks: rx.BindingBlock, body: rx.Expr = UNIT) -> list[object]:
        program = main(rx.SeqExpr(blocks, body, span=at(1)))
        found = check_well_formed(program, check_struct_info=False, normal_form=True)
        return [(d.rule, d.span) for d in found]

    first, second = (bound(var(name), UNIT) for name in "ab")
    assert shown(rx.BindingBlock((), span=at(2))) == [("NF-11", at(2))]
    assert shown(rx.BindingBlock(())) == [("NF-11", at(1))]
    assert shown(first, replace(second, span=at(3))) == [("NF-8", at(3))]
    assert shown(body=call(line=4)) == [("NF-12", at(4))]
    for binding, value, line in ((5, 6, 5), (None, 6, 6)):
        part = bound(var("c"), call(call(line=None), line=value), binding)
        assert shown(part) == [("NF-2", at(line))]


@pytest.mark.rule("WF-14d", "WF-10")
def test_a_part_of_an_annotation_is_looked_at_wherever_it_stands() -> None:
    fine, many = tuple_of(Object), DTensorStructInfo(tensor(2), MESH, SPLIT)
    for sinfo in (
        tuple_of(fine, WRONG_RANK, fine),
        tuple_of(many, WRONG_RANK, many),
        tuple_of(func(fine, ret=fine), WRONG_RANK, func(ret=fine)),
        func(fine, many, WRONG_RANK, fine, ret=fine),
        func(fine, func(fine, ret=many), ret=WRONG_RANK),
    ):
        assert places(main(UNIT, ret=sinfo)) == [("WF-14d", 1)]
