"""The effects, escapes and dependencies of bindings, which decide which may be moved."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias, cast

from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, reached, walk
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import Memory
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis import variables
from relaxpy.ir.relax.block_builder.infer import is_pure_call
from relaxpy.ir.relax.known import expect
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.support.entry import user_facing

_CONTEXT = Context()


@user_facing
def contains_impure_call(expr: rx.Expr, own_name: rx.Var | rx.GlobalVar | None = None) -> bool:
    """True if `expr`, or the body of a function, contains an impure call (PU-15, PU-16).

    Calls of `own_name`, by which a recursive function refers to itself, are ignored. A call of an
    unknown callee is impure.
    """
    expect(expr, rx.Expr)
    body = expr.body if isinstance(expr, rx.Function) else expr
    calls = (call for call in calls_made(body) if call.op is not own_name)
    return not all(is_pure_in(call, {}) for call in calls)


def makes_impure_call(expr: rx.Expr, functions: Mapping[str, rx.BaseFunc] | None = None) -> bool:
    """True if evaluating `expr` makes an impure call; a function literal makes none (PU-15).

    A function of the module is pure if `functions` declare so, or else impure.
    """
    return not all(is_pure_in(call, functions or {}) for call in calls_made(expr))


def calls_made(expr: rx.Expr) -> Iterator[rx.Call]:
    """The calls that the evaluation of `expr` makes, which exclude those in nested functions."""

    def operands(node: Node) -> Iterable[Node]:
        return () if node._variable or isinstance(node, rx.Function) else children(node)

    root: Node = expr
    return (node for node in reached([root], operands) if isinstance(node, rx.Call))


def is_pure_in(
    call: rx.Call,
    functions: Mapping[str, rx.BaseFunc],
    *,
    unknown: bool = False,
    context: Context = _CONTEXT,
) -> bool:
    """True if a call has no effect but its result, in a module with these functions.

    One of the module is as pure as it is declared. An `unknown` callee may be pure.
    """
    callee = call.op
    if isinstance(callee, rx.GlobalVar) and callee.name_hint in functions:
        func = functions[callee.name_hint]
        return isinstance(func, rx.Function) and func.is_pure
    if isinstance(callee, Op) or callee.struct_info is not None:
        return is_pure_call(call, context)
    return callee.is_pure if isinstance(callee, rx.Function) else unknown


def _is_pure_inside(expr: rx.Expr) -> bool:
    """True if a function calls only pure ones."""
    return (
        isinstance(expr, rx.Function)
        and expr.is_pure
        and not expr.attrs.get("relax.force_pure", False)
    )


class Effects:
    """Decides which calls in a function have effects; `functions` are those of its module.

    An unknown callee is pure if the function is declared pure, since it calls only pure ones then
    (PU-8).
    """

    def __init__(
        self, context: Context, functions: Mapping[str, rx.BaseFunc], expr: rx.Expr
    ) -> None:
        self.context = context
        self.functions = functions
        self.in_pure_function = _is_pure_inside(expr)

    @contextmanager
    def inside(self, func: rx.Function) -> Iterator[None]:
        """Decide about calls in `func` inside the `with` statement."""
        outer = self.in_pure_function
        self.in_pure_function = _is_pure_inside(func)
        yield
        self.in_pure_function = outer

    def is_pure(self, call: rx.Call) -> bool:
        """True if a call has no effect but its result."""
        return is_pure_in(call, self.functions, unknown=self.in_pure_function, context=self.context)

    def is_barrier(self, binding: rx.Binding) -> bool:
        """True if a binding is a barrier: nothing may move past it (OPT-3, OPT-4).

        It has effects, branches, or mutates operands.
        """
        value = binding.value
        if isinstance(value, rx.Call):
            return not self.is_pure(value) or mutates(binding)
        return isinstance(value, rx.If)


def mutates(binding: rx.Binding) -> bool:
    """True if a binding's call stores its results in operands, as call_tir_inplace does.

    It is declared pure, since no later code uses those operands.
    """
    call = binding.value
    if not isinstance(call, rx.Call) or not isinstance(call.op, Op):
        return False
    kind = call.op.record.calls
    return kind is not None and kind.mutates


def cast_may_fail(cast: rx.MatchCast) -> bool:
    """True if a cast is not known to succeed, or binds a shape variable (OPT-9)."""
    actual, sinfo = cast.value.struct_info, cast.struct_info
    if actual is None or any(isinstance(node, rx.FuncStructInfo) for node in walk(sinfo)):
        return True
    return not is_base_of(sinfo, actual)


def may_fail(binding: rx.Binding) -> bool:
    """True if a pure binding may raise an error or not terminate; OPT-3 keeps such ones in order.

    A conditional may if a binding outside the dataflow blocks of its branches may. An operator with
    a legalisation fails only because of the shapes and datatypes of its operands. If these are
    known, derivation has checked them.
    """
    value = binding.value
    if isinstance(binding, rx.MatchCast):
        return True
    if isinstance(value, rx.If):
        blocks = (*value.true_branch.blocks, *value.false_branch.blocks)
        ordinary = (block for block in blocks if not isinstance(block, rx.DataflowBlock))
        return any(may_fail(b) for block in ordinary for b in block.bindings)
    if not isinstance(value, rx.Call):
        return False
    if not isinstance(value.op, Op) or not value.op.has_attr("FLegalize"):
        return True
    if value.op.record.takes_twice and value.args[0] is value.args[1]:
        return not isinstance(value.args[0].struct_info, rx.TensorStructInfo)
    return not (_is_known_sinfo(value.struct_info) and all(map(_is_known, value.args)))


def _is_known(expr: rx.Expr) -> bool:
    if isinstance(expr, rx.Tuple):
        return all(map(_is_known, expr.fields))
    return _is_known_sinfo(expr.struct_info)


def _is_known_sinfo(sinfo: rx.StructInfo | None) -> bool:
    match sinfo:
        case rx.TensorStructInfo(dtype=dtype):
            return sinfo.get_shape() is not None and not dtype.is_void
        case rx.TupleStructInfo(fields=fields):
            return all(map(_is_known_sinfo, fields))
        case rx.PrimStructInfo():
            return True
        case rx.ShapeStructInfo(values=values):
            return values is not None
        case _:
            return False


def memory_of(value: rx.Expr) -> Memory | None:
    """The memory of the result of a call of an operator; None for any other value."""
    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return None
    return value.op.record.result_memory(value)


def is_of_operands(value: rx.Expr) -> bool:
    """True if a value is a variable, an operand of a call, or a tuple of such ones."""
    if isinstance(value, (rx.Var, rx.Tuple, rx.TupleGetItem)):
        return True
    memory = memory_of(value)
    return memory is not None and memory.is_of_operand and not memory.is_new


def computes(value: rx.Expr) -> bool:
    """True if a value is newly computed from operands that are only read, without any effect.

    No mutation of an operand or of the result can then be seen in the other one (OPT-11).
    """
    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return False
    record = value.op.record
    return record.pure is True and record.result_memory(value).is_new


class Escapes:
    """The runs of bindings without effects, and the users of each variable with their runs."""

    def __init__(self, seq: rx.SeqExpr, effects: Effects) -> None:
        self.runs: list[list[rx.Binding]] = []
        self._users: dict[rx.Var, list[tuple[int, rx.Binding | None]]] = {}
        self._run_of: dict[rx.Var, int] = {}
        for block in seq.blocks:
            self.runs.append([])
            for binding in block.bindings:
                if effects.is_barrier(binding):
                    self._enter(binding, -1)
                    self.runs.append([])
                else:
                    self.runs[-1].append(binding)
                    self._enter(binding, len(self.runs) - 1)
        for var in variables.occurring_vars(seq.body):
            self._users.setdefault(var, []).append((-1, None))

    def _enter(self, binding: rx.Binding, run: int) -> None:
        if binding.var is not None:
            self._run_of[binding.var] = run
        for var in variables.occurring_vars(binding.value):
            self._users.setdefault(var, []).append((run, binding))

    def escapes(self, var: rx.Var) -> bool:
        """True if a value escapes: whether code may mutate it, or observe a mutation.

        That is any code except for operators that compute new values from it in the same run.
        Values that the sequence does not bind itself escape.
        """
        run = self._run_of.get(var)
        if run is None:
            return True
        waiting, seen = [var], {var}
        while waiting:
            for user_run, binding in self._users.get(waiting.pop(), ()):
                if binding is None or user_run != run:
                    return True
                if is_of_operands(binding.value):
                    if binding.var is not None and binding.var not in seen:
                        seen.add(binding.var)
                        waiting.append(binding.var)
                elif not computes(binding.value):
                    return True
        return False


@user_facing
def computable_at_compile_time(func: rx.Function) -> list[rx.Var]:
    """The parameters after the first `num_input` ones, and the variables computed from these alone.

    Their values may use shape variables that the same parameters determine, and no impure calls.
    Without the attribute `num_input`, all parameters are inputs.

    Errors:
        MisuseError (also TypeError): `func` is not a Relax function, or `num_input` not a count.
    """
    expect(func, rx.Function)
    inputs = func.attrs.get("num_input", len(func.params))
    if not isinstance(inputs, int) or inputs < 0:
        raise MisuseError(f"num_input is a count, found {inputs!r:.60}", span=func.span)
    known: dict[rx.Var, None] = {}
    shape_vars: set[tir.Var] = set()

    def add(var: rx.Var, sinfo: rx.StructInfo | None) -> None:
        known[var] = None
        if sinfo is not None:
            shape_vars.update(definable_shape_vars(sinfo))

    for param in func.params[inputs:]:
        add(param, param.struct_info)
    for node in walk(func.body):
        if not isinstance(node, (rx.VarBinding, rx.MatchCast)) or node.var is None:
            continue
        if any(var not in known for var in variables.free_vars(node.value)):
            continue
        used = variables.used_shape_vars(node.value, of_variables=False)
        if not shape_vars.issuperset(used) or makes_impure_call(node.value):
            continue
        add(node.var, node.struct_info if isinstance(node, rx.MatchCast) else None)
    return list(known)


Definition: TypeAlias = rx.Binding | rx.Var


class Dependencies:
    """The definitions that each binding needs: other bindings, and variables of `inputs`.

    A definition comes before its uses, unless the bindings are not sorted yet. A shape variable
    is defined by the first cast that binds it, which may mention variables of a later cast. A
    mutation comes after everything before it, and before everything after it (OPT-2). A binding
    does not need itself: a cast mentions what it defines, and a function may call itself.
    """

    def __init__(
        self,
        bindings: Sequence[rx.Binding],
        inputs: Iterable[rx.Var] = (),
        *,
        is_sorted: bool = True,
    ) -> None:
        self._home: dict[Node, Definition] = {var: var for var in inputs}
        self._casts = any(isinstance(binding, rx.MatchCast) for binding in bindings)
        for binding in () if is_sorted else bindings:
            self._define(binding)
        self.needs: dict[rx.Binding, dict[Definition, None]] = {}
        last_mutation: rx.Binding | None = None
        since: list[rx.Binding] = []
        for binding in bindings:
            required: dict[Definition, None] = {}
            if last_mutation is not None:
                required[last_mutation] = None
            if mutates(binding):
                required |= dict.fromkeys(since)
                last_mutation, since = binding, []
            since.append(binding)
            required |= self.of(*variables.binding_operands(binding))
            required.pop(binding, None)
            self.needs[binding] = required
            if is_sorted:
                self._define(binding)

    def _define(self, binding: rx.Binding) -> None:
        if binding.var is not None:
            self._home[binding.var] = binding
        if isinstance(binding, rx.MatchCast):
            for size in definable_shape_vars(binding.struct_info):
                self._home.setdefault(size, binding)

    def of(self, *operands: Node) -> dict[Definition, None]:
        """The definitions of the variables, and of the shape variables, that operands mention."""
        used: list[Node] = []
        for operand in operands:
            used += variables.occurring_vars(operand)
            if self._casts:
                scope = cast("Container[tir.Var]", self._home)
                used += variables.used_shape_vars(operand, of_variables=False, scope=scope)
        return {self._home[node]: None for node in used if node in self._home}
