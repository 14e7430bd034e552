"""Type inference of a whole module (RLY-98, RLY-101).

The types of weights follow from those of the data, where nothing else declares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from relaxpy.errors import Diagnostic, RelayTypeError, Span
from relaxpy.ir.core.budget import Budget, run
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import children, strongly_connected
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis import TooManyCasesError, missing_cases
from relaxpy.plugins.relay.infer.exprs import ExprInference, declared_type
from relaxpy.plugins.relay.infer.solver import (
    Completion,
    Solver,
    UnifyError,
    check_literal,
    default_dtype,
)
from relaxpy.plugins.relay.module import RelayModule, global_names
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.ty import (
    Dim,
    FuncType,
    IncompleteType,
    TensorType,
    Type,
    TypeKind,
    TypeVar,
)
from relaxpy.plugins.relay.variables import free_type_vars
from relaxpy.support.dataclass import replace
from relaxpy.support.gc_pause import gc_paused


@gc_paused
def infer_module(module: RelayModule, budget: Budget | None = None) -> RelayModule:
    """A module whose expressions have types; the module itself if all had them.

    A `budget` limits the nodes of types that are visited.

    Errors:
        RelayTypeError: the module is not well-typed; all errors are reported.
    """
    inference = ExprInference(module, Solver(budget))
    functions = module.functions_by_name
    graph = {name: tuple(global_names(function)) for name, function in functions.items()}
    for group in strongly_connected(graph):
        _infer_group(inference, {name: functions[name] for name in reversed(group)})
    _default_weights(inference)
    _default_literals(inference)
    if not inference.diagnostics:
        inference.diagnostics += _open_types(inference, functions)
    if not inference.diagnostics:
        inference.diagnostics += _unmatched(inference, module)
    if inference.diagnostics:
        raise RelayTypeError(_ordered(inference.diagnostics))
    return _rebuilt(inference, module)


def _infer_group(inference: ExprInference, group: dict[str, rl.Function]) -> None:
    """Infer the types of functions that refer to each other (RLY-37)."""
    solver = inference.solver
    module = inference.module
    solver.level += 1
    types: dict[str, FuncType] = {}
    for name, function in group.items():
        for param in free_type_vars(function):
            inference.report(
                f"the type parameter {param.name_hint} is not bound", "RLY-95", param.span
            )
        declared = declared_type(function)
        inference.signatures[name] = declared or solver.hole(span=function.span)
        if declared is None:
            inference.recursive_calls[module.get_global_var(name)] = []
    for name, function in group.items():
        ty = run(inference.infer(function))
        assert isinstance(ty, FuncType)
        types[name] = ty
        if declared_type(function) is None:
            inside = replace(ty, type_params=(), type_constraints=())
            known = inference.signatures[name]
            inference.expect(inside, known, f"the function @{name}", "RLY-12", function.span)
        inference.solve()
    solver.level -= 1
    shared: set[TypeVar] = set()
    for name, function in group.items():
        variable = module.get_global_var(name)
        ty = inference.generalise(variable, function, types[name], shared)
        inference.signatures[name] = ty
        shared.update(ty.type_params)


def _default_weights(inference: ExprInference) -> None:
    """Give weights that nothing declares the types that follow from the data (RLY-100)."""
    solver = inference.solver
    inference.solve()
    filled = True
    while filled:
        filled = False
        for relation in list(solver.open):
            if relation not in solver.open or len(relation.args) < 3:
                continue
            data, *others = (solver.complete(arg) for arg in relation.args[:-1])
            types = (
                None if solver.holes(data) else weight_types(relation.name, data, relation.attrs)
            )
            for operand, ty in zip(others, types or (), strict=bool(types)):
                if isinstance(operand, IncompleteType):
                    solver.unify(operand, ty)
                    filled = True
            inference.solve()


def _default_literals(inference: ExprInference) -> None:
    """Give open literals their default datatypes once everything has come to rest (RLY-63)."""
    solver = inference.solver
    inference.solve()
    while solver.literals:
        hole, numbers = next(iter(solver.literals.items()))
        try:
            solver.unify(hole, default_dtype(numbers))
        except UnifyError as error:
            literals = inference.literals.values()
            spans = [literal.span for literal, h in literals if solver.resolve(h) is hole]
            inference.report(str(error), "RLY-63", spans[0] if spans else None)
            solver.literals.pop(hole, None)
        inference.solve()
    for literal, hole in () if inference.diagnostics else inference.literals.values():
        try:
            check_literal(literal.value, solver.resolve(hole))
        except UnifyError as error:
            if not isinstance(solver.resolve(hole), IncompleteType):
                inference.report(str(error), "RLY-63", literal.span)


def _open_types(
    inference: ExprInference, functions: dict[str, rl.Function]
) -> Iterator[Diagnostic]:
    """An error for each relation and hole that is left (RLY-101)."""
    solver = inference.solver
    reported: set[Span | None] = set()
    holes: set[IncompleteType] = set()
    for relation in solver.open:
        left = {h for arg in relation.args for h in solver.holes(arg)}
        holes |= left
        if relation.span in reported:
            continue
        reported.add(relation.span)
        described = relation.describe() if relation.describe else relation.name
        yield Diagnostic(
            f"{described} cannot be decided: the types are not known",
            "RLY-101",
            relation.span,
            "annotate the parameters that it uses, as in `%x: Tensor[(2, 3), float32]`",
        )
    for call, args in inference.instantiated:
        for hole in {h for arg in args for h in solver.holes(arg)} - holes:
            holes.add(hole)
            if call.span not in reported:
                reported.add(call.span)
                yield Diagnostic(
                    "a type argument of this call cannot be inferred",
                    "RLY-101",
                    call.span,
                    "annotate its result, as in `let %e : List[int32] = Nil;`, or write type "
                    "arguments, as in `%f<int32>()`",
                )
    for var, ty in inference.env.items():
        for hole in solver.holes(ty):
            if hole not in holes and var.span not in reported:
                reported.add(var.span)
                holes.add(hole)
                yield _open_hole(hole, var.span or hole.span, f"the type of %{var.name_hint}")
    for function in functions.values():
        for hole in solver.holes(inference.types[id(function)]):
            if hole not in holes and function.span not in reported:
                reported.add(function.span)
                holes.add(hole)
                yield _open_hole(hole, function.span)
    for ty in inference.types.values():
        for hole in solver.holes(ty):
            if hole not in holes:
                holes.add(hole)
                if hole.span not in reported:
                    reported.add(hole.span)
                    yield _open_hole(hole, hole.span)


def _open_hole(hole: IncompleteType, span: Span | None, what: str = "a type") -> Diagnostic:
    component = {
        TypeKind.Type: what,
        TypeKind.BaseType: f"the datatype in {what}",
        TypeKind.Shape: f"the shape in {what}",
        TypeKind.ShapeVar: f"a dimension in {what}",
    }.get(hole.kind, what)
    return Diagnostic(
        f"{component} cannot be inferred: nothing determines it",
        "RLY-101",
        span,
        "annotate it, as in `%x: Tensor[(2, 3), float32]` or `let %l: List[int32] = Nil;`",
    )


def _unmatched(inference: ExprInference, module: RelayModule) -> Iterator[Diagnostic]:
    """An error for each `match` under which some value fits no clause (RLY-93)."""
    for match in inference.matches:
        if match.complete:
            try:
                cases = missing_cases(match, module)
            except TooManyCasesError as error:
                yield Diagnostic(str(error), "RLY-93", match.span, error.hint)
                continue
            if cases:
                yield Diagnostic(
                    f"the match has no clause for {cases[0]}",
                    "RLY-93",
                    match.span,
                    "add a clause, or write match? so that it fails at run time",
                )


def _ordered(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """Each diagnostic once, in the order of the text."""
    unique = {str(d): d for d in diagnostics}
    return sorted(
        unique.values(), key=lambda d: (0, 0) if d.span is None else (d.span.line, d.span.column)
    )


def _rebuilt(inference: ExprInference, module: RelayModule) -> RelayModule:
    complete = inference.solver.complete
    variables: dict[str, rl.GlobalVar] = {}
    for variable in module.get_global_vars():
        ty = complete(inference.signatures[variable.name_hint])
        same = variable.checked_type_ is not None and variable.checked_type_ == ty
        variables[variable.name_hint] = variable if same else replace(variable, checked_type_=ty)
    rebuild = Rebuild(inference, variables)
    old = module.functions
    functions = {variables[v.name_hint]: rebuild(function) for v, function in old.items()}
    if all(variables[v.name_hint] is v and functions[v] is f for v, f in old.items()):
        return module
    return RelayModule(functions, module.type_definitions, module.attrs)


class Rebuild:
    """The nodes of a module with their types; unchanged nodes are kept, sharing stays."""

    def __init__(self, inference: ExprInference, global_vars: Mapping[str, rl.GlobalVar]) -> None:
        self.inference = inference
        self.global_vars = global_vars
        self._complete = Completion(inference.solver)
        self.renaming: dict[TypeVar, Any] = {}
        self.done: dict[int, Any] = {}

    def __call__(self, root: rl.RelayExpr) -> Any:
        """An expression with types."""
        self.renaming = self.inference.renamings.get(id(root), {})
        done = self.done
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in done:
                continue
            operands = [c for c in children(node) if not isinstance(c, Type)]
            if isinstance(node, (rl.Var, rl.Constructor)):
                operands = []
            if not ready and any(id(c) not in done for c in operands):
                stack.append((node, True))
                stack += [(c, False) for c in reversed(operands)]
                continue
            done[id(node)] = self._node(node)
        return done[id(root)]

    def _node(self, node: Node) -> Node:
        """A node whose components are done."""
        match node:
            case rl.Var():
                return self._variable(node)
            case rl.GlobalVar(name_hint=name):
                return self.global_vars.get(name, node)
            case rl.Literal():
                _, hole = self.inference.literals[id(node)]
                dtype = self.complete(hole)
                return node.as_constant(dtype if isinstance(dtype, DataType) else None)
            case rl.Constant() | rl.Constructor() | Op():
                return node
            case rl.Function():
                return self._function(node)
            case rl.Call():
                return self._call(node)
            case rl.RelayExpr():
                return self._typed(node, {})
            case _:
                return self._changed(node, {})

    def complete(self, ty: Any) -> Any:
        """A type without holes, with the type parameters of this function."""
        return self.inference.solver.substitute(self._complete(ty), self.renaming)

    def type_of(self, node: rl.RelayExpr) -> Type:
        """The completed type of an expression."""
        ty: Type = self.complete(self.inference.types[id(node)])
        return ty

    def _variable(self, var: rl.Var) -> rl.Var:
        ty = self.complete(self.inference.env[var])
        annotation = var.type_annotation
        if annotation is None or annotation != ty:
            completed = None if annotation is None else self.complete(annotation)
            annotation = ty if completed is None else completed
        if annotation is var.type_annotation and var.checked_type_ == ty:
            return var
        return replace(var, type_annotation=annotation, checked_type_=ty)

    def _function(self, node: rl.Function) -> Node:
        new = self.inference.new_params.get(id(node), ())
        ty: Any = self.type_of(node)
        changes: dict[str, object] = {}
        if node.ret_type is None or node.ret_type != ty.ret_type:
            completed = None if node.ret_type is None else self.complete(node.ret_type)
            changes["ret_type"] = completed or ty.ret_type
        if new:
            changes["type_params"] = (*node.type_params, *new)
        constraints = tuple(self.complete(c) for c in node.constraints)
        if any(a is not b for a, b in zip(constraints, node.constraints, strict=True)):
            changes["constraints"] = constraints
        return self._typed(node, changes)

    def _call(self, node: rl.Call) -> Node:
        changes: dict[str, object] = {}
        args = self.inference.type_args.get(id(node))
        if args is not None:
            completed = tuple(self.complete(arg) for arg in args)
            if completed != node.type_args:
                changes["type_args"] = completed
        if isinstance(node.op, Op):
            attrs = Attrs(node.op.record.text_attrs(node.attrs))
            if attrs != node.attrs:
                changes["attrs"] = attrs
        return self._typed(node, changes)

    def _typed(self, node: rl.RelayExpr, changes: dict[str, object]) -> Node:
        ty = self.type_of(node)
        if node.checked_type_ is None or node.checked_type_ != ty:
            changes["checked_type_"] = ty
        return self._changed(node, changes)

    def _changed(self, node: Node, changes: dict[str, object]) -> Node:
        """A node with these changes, and with its finished components."""
        for name in node._fields:
            if name not in changes:
                old = getattr(node, name)
                new = self._component(old)
                if new is not old:
                    changes[name] = new
        return replace(node, **changes) if changes else node  # type: ignore[type-var]

    def _component(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self.done.get(id(value), value)
        if isinstance(value, tuple):
            items = tuple(self._component(item) for item in value)
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        return value


Shape: TypeAlias = tuple[Dim, ...]
Weights: TypeAlias = Callable[[Shape, Mapping[str, Any]], Sequence[Shape] | None]
"""The shapes of the other operands, of the shape of the data and the attributes, or None."""


def weight_types(
    operator: str, data: object, attrs: Mapping[str, Any]
) -> Sequence[TensorType] | None:
    """The types that the operands after the data have if they are not declared.

    They have the datatype of the data.
    """
    rule = _WEIGHTS.get(operator)
    if (
        rule is None
        or not attrs
        or not isinstance(data, TensorType)
        or not isinstance(data.shape, tuple)
    ):
        return None
    shapes = rule(data.shape, attrs) if data.shape else None
    return None if shapes is None else [TensorType(shape, data.dtype) for shape in shapes]


def _dense(data: Shape, attrs: Mapping[str, Any]) -> Sequence[Shape] | None:
    units = attrs["units"]
    return None if units is None else [(units, data[-1])]


def _matmul(data: Shape, attrs: Mapping[str, Any]) -> Sequence[Shape] | None:
    units = attrs["units"]
    if units is None or len(data) < 2:
        return None
    size = data[-2] if attrs["transpose_a"] else data[-1]
    return [(units, size) if attrs["transpose_b"] else (size, units)]


def _convolution(data: Shape, attrs: Mapping[str, Any]) -> Sequence[Shape] | None:
    """Outputs O, inputs I of a group, and the kernel; transposed ones exchange O and I."""
    layout, kernel = attrs["data_layout"], attrs["kernel_layout"]
    channels, size, groups = attrs["channels"], attrs["kernel_size"], attrs["groups"]
    if channels is None or size is None or len(layout) != len(data) or len(kernel) != len(data):
        return None
    inputs = data[layout.index("C")]
    if not isinstance(inputs, int):
        return None
    rank = len(data) - 2
    sizes = size if isinstance(size, tuple) else (size,) * rank
    transposed = "output_padding" in attrs
    outputs, inputs = (channels // groups, inputs) if transposed else (channels, inputs // groups)
    known = {"O": outputs, "I": inputs} | dict(zip("DHW"[3 - rank :], sizes, strict=False))
    return [tuple(known[axis] for axis in kernel)] if set(kernel) == set(known) else None


def _channels(number: int) -> Weights:
    """Operands that have an element for each channel."""

    def rule(data: Shape, attrs: Mapping[str, Any]) -> Sequence[Shape] | None:
        axis = int(attrs["axis"])
        return [(data[axis],)] * number if -len(data) <= axis < len(data) else None

    return rule


_WEIGHTS: Final[dict[str, Weights]] = {
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.bias_add": _channels(1),
    "nn.prelu": _channels(1),
    "nn.batch_norm": _channels(4),
    **{f"nn.{kind}_norm": _channels(2) for kind in ("layer", "instance", "group")},
    **{f"nn.conv{n}d{end}": _convolution for n in (1, 2, 3) for end in ("", "_transpose")},
}
