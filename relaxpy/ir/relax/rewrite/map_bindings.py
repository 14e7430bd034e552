"""The driver of passes: rewrites the bindings of a program one by one, and keeps the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import is_
from typing import Any, ClassVar, Final, TypeAlias, TypeGuard, TypeVar, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import last_first, map_children, rebuild, rename, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import makes_impure_call
from relaxpy.ir.relax.analysis.variables import (
    binding_key,
    binding_operands,
    bound_vars,
    defined_symbolic_vars,
    mentions_any,
    occurring_vars,
    used_shape_vars,
)
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.block_builder.normalize import ATOMS, is_leaf
from relaxpy.ir.relax.known import expect
from relaxpy.ir.relax.nodes import Call, Function, GlobalVar, StructInfo, TupleStructInfo, Var
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars, shape_vars_of
from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing

N = TypeVar("N", bound=Node)
V = TypeVar("V", bound=Node)


@user_facing
def copy_with_new_vars(func: Function) -> Function:
    """A copy with new variables and shape variables, so that one module can have both (SC-9).

    Errors:
        MisuseError (also TypeError): `func` is not a Relax function.
    """
    if not isinstance(func, Function):
        raise MisuseError(f"expected a Function, found {type(func).__name__}", about=func)
    shape_vars, variables = _definitions(func)
    return rename(func, {var: var.renamed(var.name) for var in shape_vars}, variables)


@memoised
def _definitions(func: Function) -> tuple[list[tir.Var], list[Var]]:
    """The shape variables and the variables that a function defines."""
    return defined_symbolic_vars(func), bound_vars(func)


def replace_variables(root: N, table: Mapping[V, Node]) -> N:
    """`root` with images instead of variables; dimensions that change are simplified.

    Variables whose struct info mentions a replaced one are replaced by new ones. Derived struct
    info is dropped, except for that of calls of module functions, which the operands do not tell.
    """
    changed: dict[int, Node] = {}

    def image(node: Node) -> Node:
        replaced = table.get(node) if node._variable else None  # type: ignore[arg-type]
        return changed.get(id(node), node) if replaced is None else replaced

    def operands(node: Node) -> Sequence[Node]:
        if node._variable and node in table:
            return ()
        if isinstance(node, TupleStructInfo) and _mentioned(node).isdisjoint(table):
            return ()
        below = node._children()
        if _calls_module_function(node) and node.struct_info is not None:
            return *below, node.struct_info
        return below

    for node, below in last_first(root, operands, set()):
        if any(image(child) is not child for child in below):
            changed[id(node)] = _over(image, node)
    return cast("N", image(root))


def _over(image: Callable[[Node], Node], node: Node) -> Node:
    """A node over the images of its operands."""
    new = map_children(image, node)
    if _calls_module_function(node) and node.struct_info is not None:
        assert isinstance(new, Call)
        sinfo = cast("StructInfo", image(node.struct_info))
        return new if sinfo is new.struct_info else replace(new, struct_info=sinfo)
    return simplify(new) if isinstance(new, tir.PrimExpr) else new


@memoised
def _mentioned(sinfo: TupleStructInfo) -> frozenset[Node]:
    """The variables that the struct info of a tuple mentions.

    A tuple of many fields is often the operand of as many projections.
    """
    return frozenset(node for node in walk(sinfo) if node._variable) | frozenset(
        occurring_vars(sinfo)
    )


def _calls_module_function(node: Node) -> TypeGuard[Call]:
    return isinstance(node, Call) and isinstance(node.op, GlobalVar)


E = TypeVar("E", bound=rx.Expr)
BoundVar = TypeVar("BoundVar", bound=rx.Var)
Rewritten: TypeAlias = rx.Binding | rx.Expr | Iterable[rx.Binding | rx.BindingBlock] | None
Step: TypeAlias = Callable[[rx.Binding, rx.BindingBlock], Rewritten]


class BindingRewriter:
    """Rewrites the bindings of an expression in the order of evaluation.

    A pass overrides `step`. If it keeps track of scopes, it extends `function`, `sequence`, `block`
    or `binding`, too. Unchanged nodes stay the same objects, and spans and names are kept.
    Struct info is dropped where that of an operand changes, and normalisation derives it (DER).
    Only nested branches and functions take recursion. `_remap` has the images of variables, and
    of shape variables if the class `_remaps_shape_vars`.
    """

    _remaps_shape_vars: ClassVar[bool] = False

    def __init__(self) -> None:
        self._remap: dict[Node, Node] = {}
        self._values: dict[rx.Expr, rx.Expr] = {}
        self._originals: dict[rx.Var, rx.Var] = {}

    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        """The replacement of a binding of `block`, whose branches or body are rewritten already.

        None or the binding itself keeps it. An expression is the new value of the variable: a leaf
        replaces later uses of the variable and the binding is removed, any other value is bound.
        Bindings, maybe none, go into the same block. Blocks stay separate.
        """
        return None

    def original_of(self, var: rx.Var) -> rx.Var:
        """The variable of the program before rewriting that a variable in `step` stands for.

        A variable is replaced where its struct info mentions others that are replaced. Tables of
        the program before rewriting have the original.
        """
        return self._originals.get(var, var)

    def value_of(self, expr: rx.Expr) -> rx.Expr | None:
        """The definition of a variable, if its operands are in scope."""
        return self._values.get(expr)

    def expr(self, expr: E) -> E:
        """The expression after rewriting of the sequences directly in it, and those in them."""
        new: rx.Expr
        match expr:
            case rx.SeqExpr():
                new = self.sequence(expr)
            case rx.Function():
                new = self.function(expr)
            case rx.If(true_branch=yes, false_branch=no):
                new = _with_operands(
                    expr, true_branch=self.sequence(yes), false_branch=self.sequence(no)
                )
            case _:
                return expr
        return cast("E", new)

    def function(self, func: rx.Function) -> rx.Function:
        """The function with its body rewritten."""
        return _with_operands(func, body=self.sequence(func.body))

    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        """The sequence after rewriting, with neighbouring blocks of one kind joined."""
        blocks = [new for block in seq.blocks for new in self.block(block)]
        body = self._remapped(seq.body)
        if len(blocks) != len(seq.blocks) or not all(map(is_, blocks, seq.blocks)):
            return rebuild(seq, blocks=tuple(joined(blocks)), body=body)
        return _with_operands(seq, body=body)

    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        """The blocks that replace a block: itself if none of its bindings changes."""
        blocks: list[rx.BindingBlock] = []
        run: list[rx.Binding] = []
        for binding in block.bindings:
            for new in self.binding(binding, block):
                if isinstance(new, rx.BindingBlock):
                    blocks += [replace(block, bindings=tuple(run)), new]
                    run = []
                else:
                    run.append(new)
                    if isinstance(new, rx.VarBinding):
                        self._values[new.var] = new.value
        if isinstance(block, rx.DataflowBlock):
            for binding in block.bindings:
                self._values.pop(binding.var, None)  # type: ignore[arg-type]
        return [*blocks, with_bindings(block, run)]

    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        """The replacement of a binding: its value is rewritten, and then `step` decides."""
        keeps = not self._remaps_shape_vars and not mentions_any(binding, self._remap)
        seen = binding if keeps else self._remapped(binding)
        if binding.var is not None and seen.var is not None and seen.var is not binding.var:
            self._remap[binding.var] = seen.var
            self._originals[seen.var] = binding.var
        value = self.expr(seen.value)
        if value is not seen.value:
            seen = replace(seen, value=value)
        new = self.step(seen, block)
        if new is None:
            return (seen,)
        if isinstance(new, (rx.VarBinding, rx.MatchCast)):
            return (new,)
        if not isinstance(new, rx.Expr):
            return _checked(new)
        if not isinstance(seen, rx.VarBinding) or not is_leaf(new) or _outlives(seen.var, new):
            return (replace(seen, value=new),)
        self._remap[seen.var] = new
        if seen is not binding and binding.var is not None:
            self._remap[binding.var] = new
        return ()

    def rederived(self, var: BoundVar, sinfo: rx.StructInfo | None = None) -> BoundVar:
        """A variable instead of this one, whose struct info is derived, if it is not `sinfo`."""
        new = type(var)(var.name_hint, sinfo, var.span)
        self._remap[var] = new
        return new

    def _remapped(self, node: N) -> N:
        """The node with the images (remap) of variables that are no longer bound."""
        return replace_variables(node, self._remap) if self._remap else node


class _MapBindings(BindingRewriter):
    def __init__(self, step: Step) -> None:
        super().__init__()
        self._step = step

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        return self._step(binding, block)


def map_bindings(expr: E, step: Step) -> E:
    """`expr` with `step(binding, block)` instead of each binding; see `BindingRewriter.step`.

    Branches and nested functions are rewritten before the binding that contains them.
    """
    return _MapBindings(step).expr(expr)


def _checked(new: Any) -> Iterable[rx.Binding | rx.BindingBlock]:
    """The bindings that a step has returned. Errors: MisuseError if it returned something else."""
    kinds = rx.VarBinding, rx.MatchCast, rx.BindingBlock
    is_list = isinstance(new, Iterable) and not isinstance(new, (str, bytes))
    items: list[Any] = list(new) if is_list else [new]
    for item in items:
        if not isinstance(item, kinds):
            raise unexpected(
                item,
                "a step returns None, an expression, a binding, or a list of bindings and blocks",
            )
    return items


def _outlives(var: rx.Var, leaf: rx.Expr) -> bool:
    """True if a variable is visible where one that a leaf mentions no longer is (SC-7)."""
    return not isinstance(var, rx.DataflowVar) and any(
        isinstance(used, rx.DataflowVar) for used in occurring_vars(leaf)
    )


def _with_operands(expr: E, **operands: rx.Expr) -> E:
    """`expr` with these operands: itself if it has them already."""
    same = all(operand is getattr(expr, name) for name, operand in operands.items())
    return expr if same else rebuild(expr, **operands)


def with_bindings(block: rx.BindingBlock, bindings: Sequence[rx.Binding]) -> rx.BindingBlock:
    """`block` with these bindings: itself if it has them already."""
    same = len(bindings) == len(block.bindings) and all(map(is_, bindings, block.bindings))
    return block if same else replace(block, bindings=tuple(bindings))


def joined(blocks: Iterable[rx.BindingBlock]) -> list[rx.BindingBlock]:
    """The blocks that are not empty, neighbours merged (NF-8, NF-9, NF-10, NF-11)."""
    filled = [block for block in blocks if block.bindings]
    result: list[rx.BindingBlock] = []
    for _, group in groupby(filled, lambda block: isinstance(block, rx.DataflowBlock)):
        first, *others = group
        bindings = [b for block in (first, *others) for b in block.bindings]
        result.append(replace(first, bindings=tuple(bindings)) if others else first)
    return result


def map_with_builder(mod: IRModule, step: Callable[[Function, BlockBuilder], Function]) -> IRModule:
    """The module with `step(func, builder)` instead of each Relax function.

    It has the functions that the steps add to the builder, too. If no Relax function changes, it is
    the module itself.
    """
    builder = BlockBuilder(mod)
    changed: dict[str, Function] = {}
    for var, func in mod.items():
        if isinstance(func, Function):
            new = step(func, builder)
            if new is not func:
                changed[var.name_hint] = new
    if not changed:
        return mod
    result = builder.get()
    for name, func in changed.items():
        result[name] = func
    return result


class PrecedingBindings:
    """The `bindings` of new variables that replace `binding` of a block, together with `ended`.

    The variables have a `name`, by default that of the binding, and calls without a position have
    its.
    """

    def __init__(self, binding: rx.Binding, block: rx.BindingBlock, name: str = "") -> None:
        self.binding = binding
        self.bindings: list[rx.Binding] = []
        self._kind = block.var_type
        self.name = name or ("lv" if binding.var is None else binding.var.name_hint)

    def bound(self, value: rx.Expr, suffix: str = "") -> rx.Var:
        """A new variable that is bound to a value; the value itself if it is a variable."""
        if isinstance(value, rx.Var):
            return value
        var = self._kind(self.name + suffix, value.struct_info)
        self.bindings.append(rx.VarBinding(var, self.located(value), self.binding.span))
        return var

    def cast(self, name: str, value: rx.Expr, sinfo: rx.StructInfo) -> rx.Var:
        """A new variable of this name for a value that is cast to struct info."""
        var = self._kind(name, sinfo)
        self.bindings.append(rx.MatchCast(var, value, sinfo, self.binding.span))
        return var

    def ended(self, value: rx.Expr) -> list[rx.Binding]:
        """All bindings, and after them that of the value to the variable of the program."""
        return [*self.bindings, replace(self.binding, value=self.located(value))]

    def located(self, value: rx.Expr) -> rx.Expr:
        """The value with the position of the replaced node, unless it has one."""
        if not isinstance(value, (rx.Call, rx.TupleGetItem)) or value.span is not None:
            return value
        return replace(value, span=self.binding.value.span or self.binding.span)


def is_sharper(actual: StructInfo, declared: StructInfo) -> bool:
    """True if more is known of a value; a Var as its shape adds nothing to its dimensions."""
    if declared == actual or not is_base_of(declared, actual):
        return False
    return not occurring_vars(actual) or not is_base_of(actual, declared)


class Refined(PyExprMutator):
    """Gives variables the struct info in `sinfos`, and derives that of all that depends on them.

    A variable whose value is derived again receives the result only if it is more precise.
    """

    def __init__(self, mod: IRModule | None, sinfos: Mapping[Var, StructInfo]) -> None:
        super().__init__(mod)
        self.refined = sinfos

    @override
    def visit_var_def_(self, var: Var) -> Any:
        sinfo = self.refined.get(var)
        return super().visit_var_def_(
            var if sinfo is None else super().with_struct_info(var, sinfo)
        )

    @override
    def with_struct_info(self, var: Var, struct_info: StructInfo) -> Var:
        declared = var.struct_info
        keep = declared is not None and not is_sharper(struct_info, declared)
        return var if keep else super().with_struct_info(var, struct_info)


def with_derived_results(before: IRModule, after: IRModule) -> IRModule:
    """`after`, in which each changed function declares the struct info of its body's result.

    A declaration stays if less is known of the body. The module is in normal form (OPT-14).
    """
    result = after
    for var, func in after.items():
        if not isinstance(func, Function) or func is before.find_function(var.name_hint):
            continue
        declared, derived = func.ret_struct_info, func.body.struct_info
        if declared is None or derived is None or is_base_of(derived, declared):
            continue
        if is_base_of(declared, derived):
            result = after.clone() if result is after else result
            result[var] = rebuild(func, ret_struct_info=derived)
    return normalize_module(result)


Keep = Callable[[rx.Binding], bool]


@user_facing
def remove_all_unused(func: E) -> E:
    """`func` without the bindings whose variables nothing uses; itself if there are none.

    Casts and impure calls stay, with the bindings that they use; dataflow blocks have no impure
    calls (PU-5). Empty blocks are removed, and the blocks next to them are merged (NF-8, NF-9,
    NF-11).
    """
    expect(func, rx.Expr)
    return without_unused(func, lambda binding: isinstance(binding, rx.MatchCast))


def _is_impure(binding: rx.Binding) -> bool:
    return makes_impure_call(binding.value)


def without_unused(expr: E, keep: Keep = lambda _: False, has_effect: Keep = _is_impure) -> E:
    """`expr` without bindings that nothing uses, except for those to `keep`.

    Ordinary bindings are also kept for their effects, which are impure calls by default.
    """
    needed = needed_bindings(expr, keep, has_effect)
    return map_bindings(expr, lambda binding, _: None if binding_key(binding) in needed else ())


def needed_bindings(
    root: rx.Expr, keep: Keep = lambda _: False, has_effect: Keep = _is_impure
) -> set[rx.Var | rx.Binding]:
    """The variables that results, effects and bindings to `keep` depend on, and the other casts.

    A cast is also needed for the shape variables that it binds (OPT-9).
    """
    needed: set[rx.Var | rx.Binding] = set()
    used: set[rx.Var] = set()
    binders: dict[rx.Var, list[rx.Binding]] = {}
    casts = _casts_by_shape_var(root)
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        match node:
            case rx.Var():
                if node not in used:
                    used.add(node)
                    waiting += (*occurring_vars(node), *binders.get(node, ()))
            case rx.VarBinding() | rx.MatchCast():
                if binding_key(node) not in needed:
                    needed.add(binding_key(node))
                    waiting += binding_operands(node)
            case rx.SeqExpr(blocks=blocks, body=body):
                waiting.append(body)
                for block in blocks:
                    for binding in block.bindings:
                        if binding.var is not None:
                            binders.setdefault(binding.var, []).append(binding)
                        dataflow = isinstance(block, rx.DataflowBlock)
                        effects = not dataflow and has_effect(binding)
                        if binding.var in used or effects or keep(binding):
                            waiting.append(binding)
            case rx.If(cond=cond, true_branch=yes, false_branch=no):
                waiting += (cond, yes, no)
            case rx.Function(params=params, body=body, ret_struct_info=ret):
                sinfos = (*(param.struct_info for param in params), ret)
                waiting += (*params, *(info for info in sinfos if info is not None), body)
            case _:
                waiting += occurring_vars(node)
                if casts:
                    for size in used_shape_vars(node, of_variables=False, scope=casts):
                        waiting += casts.pop(size, ())
    return needed | used


def _casts_by_shape_var(root: rx.Expr) -> dict[tir.Var, list[rx.MatchCast]]:
    """The casts that may bind each shape variable: no parameter of a function around them does."""
    casts: dict[tir.Var, list[rx.MatchCast]] = {}
    scopes: list[tuple[rx.Expr, frozenset[tir.Var]]] = [(root, frozenset())]
    for scope, known in scopes:
        for node in _above_leaves(scope):
            if isinstance(node, rx.Function):
                scopes.append((node.body, known.union(shape_vars_of(node.params))))
            elif isinstance(node, rx.MatchCast):
                for var in definable_shape_vars(node.struct_info):
                    if var not in known:
                        casts.setdefault(var, []).append(node)
    return casts


def _above_leaves(root: rx.Expr) -> Iterator[Node]:
    """Visit the nodes under `root` once that are neither leaves nor struct info, in order.

    The bodies of functions are not entered.
    """
    visited: set[int] = set()
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if type(node) in _LEAVES or isinstance(node, rx.StructInfo) or id(node) in visited:
            continue
        visited.add(id(node))
        yield node
        if not isinstance(node, rx.Function):
            stack += [child for child in reversed(node._children()) if type(child) not in _LEAVES]


_LEAVES: Final = ATOMS | {Op, rx.ExternFunc}
