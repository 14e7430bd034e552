"""Walking and rewriting: each node once, what is shared stays shared."""

from itertools import product

import pytest

from relaxpy.ir import IRModule, Op
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, map_children, occurrences, rename, rewrite, walk
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import TensorStructInfo as Tensor
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.lower import create_prim_func
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BufferStore, Evaluate, For, SeqStmt, Stmt
from relaxpy.ir.tir.substitution import substitute
from relaxpy.tvm.relax.helpers import update_struct_info
from tests.counting import calls_of

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
X = rx.Var("x", Tensor((N, 4)))


def call(op: str, *args: rx.Expr) -> rx.Call:
    return rx.Call(Op(f"relax.{op}"), args)


def test_children_stand_in_the_order_of_the_fields():
    inner = call("exp", X)
    outer = rx.Call(Op("relax.add"), (inner, X), {"size": N, "sizes": [M]}, [Tensor((2,))])
    assert list(children(outer)) == [Op("relax.add"), inner, X, N, M, Tensor((2,))]


def test_walk_gives_each_node_once_and_operands_first():
    shared = call("exp", X)
    root = call("add", shared, shared)
    found = [type(n).__name__ for n in walk(root)]
    assert found == ["Op", "Op", "Var", "Call", "Call"]
    assert list(walk(root))[-2:] == [shared, root]


def test_walk_enters_no_variables():
    assert N not in list(walk(call("exp", X)))
    buffer = decl_buffer((N,), "float32", "A")
    assert N not in list(walk(buffer[0]))
    assert list(walk(X))[-1] is X


def test_occurrences_are_those_of_a_walk():
    a, k = te.placeholder((4, 5), name="a"), te.reduce_axis((0, 5), name="k")
    total = te.compute((4,), lambda i: reduce.sum(intrin.exp(a[i, k // 2]), axis=k))
    x = tir.Var("x", "int32")
    let = tir.Let(x, tir.IntImm("int32", 3), x % 2 + tir.SizeVar("s"))
    called = intrin.call_extern("int32", "f", let)
    roots = [create_prim_func([a, total]).body, total.op.body[0], let, called]
    names = "Var SizeVar Call FloorDiv FloorMod Let Cast BinaryOpExpr PrimExpr"
    classes = [getattr(tir, name) for name in names.split()]
    classes += [BufferLoad, Buffer, IterVar, BufferStore, Block, SeqStmt, Stmt, te.Tensor, Op]
    for root, one, other in product(roots, classes, classes):
        expected = [node for node in walk(root) if isinstance(node, (one, other))]
        assert list(occurrences(root, one, other)) == expected


def consists_of(root: Node, *kinds: type[Node]) -> bool:
    """True if nodes say that all expressions in `root` are of some classes."""
    bits = 0
    for kind in kinds:
        bits |= kind._bits
    return not root._bits_inside & ~bits


def test_ranges_say_what_is_in_their_bounds() -> None:
    """Most nodes of a kernel are in ranges, which no search for statements enters."""
    a = decl_buffer((8,), "int32", "A")
    for stop, has_call in ((N, False), (intrin.call_extern("int64", "f", N), True)):
        rng = Range(0, stop)
        for node in (rng, IterVar(rng, "i", 0), BufferRegion(a, [rng])):
            assert consists_of(node, tir.PrimExpr)
            assert consists_of(node, tir.Var, tir.IntImm) is not has_call
    assert consists_of(IterVar(None, "i", 0), tir.Var)
    scalar = BufferRegion(decl_buffer((), "int32", "B"), [])
    assert list(occurrences(scalar, Buffer)) == [scalar.buffer]


def test_walk_is_not_limited_by_depth():
    expr: rx.Expr = X
    for _ in range(5000):
        expr = call("exp", expr)
    assert sum(isinstance(n, rx.Call) for n in walk(expr)) == 5000
    assert rewrite(expr, lambda node: None) is expr


def test_what_does_not_change_is_the_same_object():
    root = rx.Function([X], rx.SeqExpr([rx.BindingBlock([rx.VarBinding(X, call("exp", X))])], X))
    assert rewrite(root, lambda node: None) is root
    assert map_children(lambda child: child, root) is root
    assert substitute(root, {M: N}) is root
    assert substitute(root, {}) is root


def test_modules_are_rewritten_under_their_names():
    mod = IRModule({"f": rx.Function([X], call("exp", X))}, {"a": 1}, {"mesh": [X]})
    assert rewrite(mod, lambda node: None) is mod
    assert substitute(mod, {M: N}) is mod
    after = rewrite(mod, lambda node: call("log", X) if isinstance(node, rx.Call) else None)
    assert after["f"].body.body.op is Op("relax.log")
    assert after.get_global_var("f") is mod.get_global_var("f")
    assert (after.attrs, after.global_infos) == (mod.attrs, mod.global_infos)
    assert mod["f"].body.body.op is Op("relax.exp")


def test_a_rule_is_applied_once_to_each_node_and_sharing_is_kept():
    shared = call("exp", X)
    seen: list[object] = []

    def rule(node: object) -> rx.Expr | None:
        seen.append(node)
        return call("log", X) if node is shared else None

    changed = rewrite(call("add", shared, shared), rule)
    assert changed.args[0] is changed.args[1]
    assert changed.args[0].op is Op("relax.log")
    assert len(seen) == len({id(n) for n in seen})


def test_rebuilding_drops_struct_infos_that_may_be_stale():
    typed = rx.Call(Op("relax.exp"), (call("exp", X),), struct_info=Tensor((N, 4)))
    changed = rewrite(typed, lambda node: X if node is typed.args[0] else None)
    assert changed.args == (X,)
    assert changed.struct_info is None


@pytest.mark.parametrize("depth", [1, 3])
def test_substitution_reaches_scalars_everywhere(depth: int):
    expr: tir.PrimExpr = N
    for _ in range(depth):
        expr = expr + N
    shape = rx.ShapeExpr([expr, 2])
    changed = substitute(shape, {N: ops.const(3, "int64")})
    assert N not in list(walk(changed))
    assert shape.values[0] is expr


def test_substitution_does_not_fold():
    assert str(substitute(N + 1, {N: ops.const(3, "int64")})) == "T.Add(T.int64(3), T.int64(1))"


def test_substitution_makes_variables_anew_once():
    y = rx.Var("y", Tensor((N, 4)))
    func = rx.Function([X], rx.SeqExpr([rx.BindingBlock([rx.VarBinding(y, call("add", X, X))])], y))
    changed = substitute(func, {N: M})
    [param], [binding] = changed.params, changed.body.blocks[0].bindings
    assert param is not X
    assert param.struct_info == Tensor((M, 4))
    assert binding.value.args == (param, param)
    assert changed.body.body is binding.var
    assert binding.var.struct_info == Tensor((M, 4))


def test_substitution_makes_variables_anew_through_shapes_held_by_variables():
    shape = rx.Var("s", rx.ShapeStructInfo((N,)))
    tensor = rx.Var("t", Tensor(shape))
    changed = substitute(rx.Tuple([shape, tensor]), {N: M})
    assert changed.fields[1].struct_info.shape is changed.fields[0]


def test_substitution_makes_buffers_anew_once():
    a = decl_buffer((N,), "float32", "A")
    i = tir.Var("i", "int64")
    body = SeqStmt([BufferStore(a, 1.0, (i,)), BufferStore(a, a[i] + 1.0, (i,))])
    changed = substitute(For(i, 0, N, 0, body), {N: ops.const(8, "int64")})
    first, second = changed.body.seq
    assert first.buffer is second.buffer is second.value.a.buffer
    assert first.buffer is not a
    assert first.buffer.shape == (ops.const(8, "int64"),)
    assert changed.extent is ops.const(8, "int64")


def test_a_kernel_is_rebuilt_with_its_signature():
    a = decl_buffer((N,), "float32", "A")
    func = PrimFunc([a], Evaluate(0))
    changed = substitute(func, {N: ops.const(8, "int64")})
    assert changed.struct_info.params == (Tensor((8,)),)
    assert func.struct_info.params == (Tensor((N,)),)


def test_rewriting_replaces_what_is_beside_a_buffer_and_not_its_shape():
    a = decl_buffer((N,), "float32", "A")
    store = BufferStore(a, ops.cast_to(N, "float32"), (N - 1,))
    changed = rewrite(store, {N: M}.get)
    assert changed.buffer is a
    assert (changed.value, changed.indices[0]) == (ops.cast_to(M, "float32"), M - 1)


def test_rewriting_visits_the_last_operand_first():
    seen: list[object] = []
    rewrite((N + 1) * M, seen.append)
    assert seen == [M, ops.const(1, "int64"), N, N + 1, (N + 1) * M]


def test_renaming_a_variable_to_itself_changes_nothing():
    body = Evaluate(N + 1)
    assert rename(body, {N: N}) is body
    assert rename(N, {N: M}) is M


def test_renaming_checks_no_operand_again():
    a = te.placeholder((N, 4), "float32", "A")
    k = te.reduce_axis((0, 4), "k")
    total = te.compute((N,), lambda i: reduce.sum(a[i, k] * 2.0, axis=k), "B")
    kernel = create_prim_func([a, total], "int64")
    defined = [v for node in walk(kernel.body) for v in defined_in(node)]
    copies = [rename(kernel.body, {}, defined) for _ in range(2)]
    for kind in (For, BufferStore, Block):
        assert calls_of(kind.__post_init__, lambda: rename(kernel.body, {}, defined)) == 0
    assert structural_equal(*copies)
    assert structural_equal(kernel, kernel.with_body(copies[0]))
    assert set(map(type, walk(copies[0]))) == set(map(type, walk(kernel.body)))
    assert not {*defined} & {*walk(copies[0])}


def defined_in(node: Node) -> list[Node]:
    bound = [getattr(node, name) for name in node._binds]
    return [v for value in bound for v in (value if isinstance(value, tuple) else (value,))]


def test_the_children_of_what_is_completed_or_changed_are_those_of_today():
    var = rx.Var("y")
    assert list(children(var)) == []
    sinfo = Tensor((2,))
    update_struct_info(var, sinfo)
    assert list(children(var)) == [sinfo]
    func = PrimFunc([], Evaluate(0))
    module = IRModule({"f": func})
    assert func in list(walk(module))
    module["g"] = other = PrimFunc([], Evaluate(1))
    assert other in list(walk(module))
