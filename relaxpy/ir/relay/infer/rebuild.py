"""The program with the types that inference found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relaxpy.dataclass import replace
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import children
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.infer.exprs import ExprInference
from relaxpy.ir.relay.infer.solver import Completion
from relaxpy.ir.relay.op.registry import Op
from relaxpy.ir.relay.ty import Type, TypeVar


class Rebuild:
    """The nodes of a module with their types; unchanged nodes are kept, sharing stays."""

    def __init__(self, inference: ExprInference, global_vars: Mapping[str, rl.GlobalVar]) -> None:
        self.inference = inference
        self.global_vars = global_vars
        self._complete = Completion(inference.solver)
        self.renaming: dict[TypeVar, Any] = {}
        self.done: dict[int, Any] = {}

    def __call__(self, root: rl.RelayExpr) -> Any:
        """Return an expression with types."""
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
        """Return a node whose components are done."""
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
        """Return a type without holes, with the type parameters of this function."""
        return self.inference.solver.substitute(self._complete(ty), self.renaming)

    def type_of(self, node: rl.RelayExpr) -> Type:
        """Return the completed type of an expression."""
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
        """Return a node with these changes, and with its components as they are done."""
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
