"""Expressions of graph functions: Python's operators on Relax values, calls, positions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from relaxpy.errors import MisuseError, ParseError, ParseNameError, RelaxpyError, Span
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops import python_syntax
from relaxpy.ir.ops.call import sinfo_list
from relaxpy.ir.ops.definition.registry import OpDef, renamed
from relaxpy.ir.ops.python_syntax import (
    NUMBERS,
    PROPERTIES,
    Inspected,
    TensorSizes,
    hint_for,
    inspected,
    known_property,
)
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DeviceMesh
from relaxpy.ir.relax.relations.derivation import written_at
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.script.language import records, wording
from relaxpy.script.language.annotations import (
    Annotation,
    Devices,
    DTensor,
    Tensor,
    TypeName,
    resolve,
)
from relaxpy.script.language.legacy import UNSUPPORTED, RuntimeDepShape
from relaxpy.script.language.records import is_helper
from relaxpy.script.parser.evaluate import user_calls
from relaxpy.script.parser.evaluate.evaluator import Evaluator
from relaxpy.script.parser.evaluate.macros import Macro
from relaxpy.script.parser.source import MISSING, ModuleRef, Positioned, Program
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import last_name

if TYPE_CHECKING:
    from relaxpy.script.parser.graph.relax_function import GraphReader

#: The operators of Python that have a meaning between Relax values, and their methods.
_METHODS = {
    "+": "__add__",
    "-": "__sub__",
    "*": "__mul__",
    "/": "__truediv__",
    "//": "__floordiv__",
    "%": "__mod__",
    "**": "__pow__",
    "@": "__matmul__",
    "<": "__lt__",
    "<=": "__le__",
    ">": "__gt__",
    ">=": "__ge__",
    "&": "__and__",
    "|": "__or__",
    "^": "__xor__",
    "<<": "__lshift__",
    ">>": "__rshift__",
    "==": "__eq__",
    "!=": "__ne__",
}


_CASTS = (records.MatchCastForm, records.MatchShapeForm)
_SPECIAL = (*_CASTS, records.UnknownShape, tuple, list)


class GraphEvaluator(Evaluator):
    """Expressions of a graph function; `positions` maps ids of values to their last positions.

    `host` is the function that is being parsed, if there is one; `devices` are the module's.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        Evaluator.__init__(self, *args, **kwargs)
        self.host: GraphReader | None = None
        self.devices = Devices()
        self.annotating = False
        self._current: ast.expr | None = None
        self.positions: dict[int, tuple[Program, Positioned]] = {}
        self.ended: dict[str, str] = {}
        self._alive: list[object] = []
        self._properties: dict[ast.expr, Inspected | DataType] = {}
        self._annotations: list[tuple[Annotation, tuple[Program, Positioned]]] = []

    def forget(self) -> None:
        """Forget the positions of values at the start of a statement."""
        self.positions.clear()
        self._alive.clear()
        self._properties.clear()
        self._annotations.clear()

    def position_of(self, expr: rx.Expr) -> Span | None:
        """The position of `expr` in this statement."""
        span = self._written(expr)
        return written_at(expr) if span is None else span

    def _written(self, value: object) -> Span | None:
        """The position of `value` in this statement, or None."""
        position = self.positions.get(id(value))
        return None if position is None else position[0].span(position[1])

    def located(self, error: RelaxpyError, otherwise: Span) -> RelaxpyError:
        """Locate `error` at its operand, if that is in this statement."""
        about = error.about
        position = self._written(about)
        # A variable that normalisation has bound has the span of the operand.
        if position is None and isinstance(about, rx.Var):
            spans = [program.span(node) for program, node in self.positions.values()]
            position = about.span if about.span in spans else None
        return wording.as_parse_error(error, position or otherwise)

    @override
    def unknown(self, node: ast.Name) -> ParseError:
        error = Evaluator.unknown(self, node)
        reason = self.ended.get(node.id)
        operators = wording.operators_called(node.id)
        if reason is None:
            suggestion = f"did you mean `{operators[0]}`?" if operators else None
            hint = error.diagnostic.hint or suggestion
            rule = error.diagnostic.rule
            return self.error(node, error.diagnostic.message, type(error), hint=hint, rule=rule)
        return self.error(
            node,
            f"{node.id!r} is not visible here: {reason}",
            ParseNameError,
            rule="SC-7",
            hint=f"list it in R.output({node.id}) at the end of the block",
        )

    @contextmanager
    def in_annotation(self) -> Iterator[None]:
        """Evaluate an annotation, where `_` is an unknown shape (LEG-4), until the context ends."""
        outer, self.annotating = self.annotating, True
        try:
            yield
        finally:
            self.annotating = outer

    @override
    def _name(self, node: ast.Name) -> object:
        if node.id == "_" and self._means_unknown_shape():
            return RuntimeDepShape
        return Evaluator._name(self, node)

    def _means_unknown_shape(self) -> bool:
        """True if `_` means an unknown shape; it may also be an ordinary name."""
        known = self.scope.find_bound("_")
        return known is MISSING or (self.annotating and not isinstance(known, PrimExpr))

    @override
    def unknown_attribute(self, owner: object, node: ast.Attribute) -> ParseError:
        error = Evaluator.unknown_attribute(self, owner, node)
        unsupported = UNSUPPORTED.get(node.attr)
        if unsupported is None or isinstance(owner, rx.Expr):
            return error
        rule, hint = unsupported
        return self.error(last_name(node), f"{node.attr} is not supported", rule=rule, hint=hint)

    @override
    def attribute_of(self, owner: object, node: ast.Attribute) -> object:
        if isinstance(owner, rx.Expr) and node.attr in PROPERTIES:
            return self.inspected(owner, node)
        if isinstance(owner, DataType):
            self._properties[node] = owner
        value = Evaluator.attribute_of(self, owner, node)
        return self.evaluate(value, node) if isinstance(value, rx.Call) else value

    def inspected(self, owner: rx.Expr, node: ast.Attribute) -> object:
        """A property such as `owner.shape`: its known value, or a call that computes it."""
        sinfo = owner.struct_info
        if not isinstance(sinfo, rx.TensorStructInfo):
            actual = "no struct info" if sinfo is None else str(sinfo)
            raise self.error(node, f"only a tensor has .{node.attr}, found {actual}")
        known = known_property(sinfo, node.attr)
        value = inspected(owner, node.attr)
        if known is not None:
            self._properties[node] = value
            return known
        return self.evaluate(value, node) if isinstance(value, rx.Expr) else value

    def evaluate(self, expr: rx.Expr, node: ast.expr, *, shared: bool = False) -> rx.Expr:
        """`expr` as the value of `node`; a call is bound once, in the evaluation order."""
        expr = self._at(expr, node)
        if isinstance(expr, (rx.Call, rx.Tuple, rx.Constant)):
            self.guard.derivation(expr, node, self)
        if self.host is None:
            return expr
        if isinstance(expr, rx.Call) and isinstance(node, ast.Call):
            self._locate_operands(expr, node)
        try:
            return self.host.evaluate(expr, shared=shared)
        except RelaxpyError as error:
            raise self.located(error, self.span(node)) from None

    def evaluate_here(self, call: rx.Expr) -> rx.Expr:
        """Bind a call that Python code has built while the current expression is evaluated."""
        if self.host is None or self._current is None:
            return call
        self.guard.derivation(call, self._current, self)
        return self.host.evaluate(self._at(call, self._current), shared=True)

    @override
    def value(self, node: ast.expr) -> Any:
        outer, self._current = self._current, node
        value = Evaluator.value(self, node)
        if isinstance(node, (ast.UnaryOp, ast.Compare)) and isinstance(value, rx.Call):
            # No variable of Python refers to the call, which its operator evaluated.
            value = self.evaluate(value, node)
        self._current = outer
        if isinstance(value, rx.Expr):
            self.positions[id(value)] = self.program, node
            self._alive.append(value)
        elif isinstance(value, Annotation) and not self.annotating:
            self._annotations.append((value, (self.program, node)))
        return value

    @override
    def iterable(self, value: Any, node: ast.expr) -> Iterable[object]:
        members = Evaluator.iterable(self, value, node)
        if self.host is None or not isinstance(value, Iterator):
            return members
        return self._yielded(iter(members), node)

    def _yielded(self, members: Iterator[object], node: ast.expr) -> Iterator[object]:
        """The members of a user's generator, one at a time as in Python."""
        assert self.host is not None
        while True:
            outer, self._current = self._current, node
            with self.host.eager(node):
                member = user_calls.next_member(members, MISSING)
            self._current = outer
            if member is MISSING:
                return
            yield self.evaluate(member, node) if isinstance(member, rx.Expr) else member

    def _locate_operands(self, call: rx.Call, node: ast.Call) -> None:
        """Record the positions of tuple operands, of struct infos, and of a wrong callee."""
        if isinstance(call.op, rx.Var) and not isinstance(call.op.struct_info, rx.FuncStructInfo):
            self.positions[id(call.op)] = self.program, node.func
        for sinfo in call.sinfo_args:
            equal = [at for annotation, at in self._annotations if resolve(annotation) == sinfo]
            self.positions |= {id(sinfo): at for at in equal}
        tuples = [a for a in call.args if isinstance(a, rx.Tuple) and a.fields]
        nodes = [*node.args, *(keyword.value for keyword in node.keywords)] if tuples else []
        displays = [d for d in nodes if isinstance(d, (ast.Tuple, ast.List)) and d.elts]
        for operand in tuples:
            last = self._written(operand.fields[-1])
            display = next((d for d in displays if self.span(d.elts[-1]) == last), None)
            if display is not None:
                self.positions[id(operand)] = self.program, display

    @override
    def on_binary(self, sign: str, left: object, right: object) -> object:
        if not isinstance(left, rx.Expr) and not isinstance(right, rx.Expr):
            return MISSING
        method = _METHODS.get(sign)
        if method is None or _defines(left, method):
            return MISSING
        return python_syntax.apply(sign, left, right)

    @override
    def on_unary(self, sign: str, operand: object) -> object:
        if not isinstance(operand, rx.Expr) or sign == "not":
            return MISSING
        return python_syntax.apply_unary(sign, operand)

    @override
    def binary(self, kind: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        self._current = node
        result = Evaluator.binary(self, kind, left, right, node)
        return self.evaluate(result, node) if isinstance(result, rx.Call) else result

    @override
    def on_call(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        if any(isinstance(arg, _SPECIAL) for arg in args):
            args = self.plain(function, args, node)
        if isinstance(function, OpDef):
            args, kwargs = self._on_listed_devices(function, args, kwargs)
            try:
                call_kwargs = {"span": self.span(node), **kwargs}
                call = user_calls.call(function.make, args, call_kwargs)
            except MisuseError as error:
                self.hinted(error)
                absent = _absent(function, args, kwargs, node) if error.about is None else None
                raise error if absent is None else error.located(self.span(absent)) from None
            return self.evaluate(call, node)
        if isinstance(function, rx.Expr):
            return self.evaluate(self.called(function, args, kwargs, node), node)
        if isinstance(function, Macro):
            if self.host is None:
                raise self.error(node, "a macro is used inside a function")
            return self.host.expand(function, args, kwargs, node)
        if function is len and args and isinstance(args[0], rx.Expr):
            sinfo = args[0].struct_info
            if isinstance(sinfo, rx.TupleStructInfo):
                return len(sinfo.fields)
        shared = is_helper(function)
        if shared and self.host is not None:
            result = self.host.call_helper(function, args, kwargs, node)
        else:
            result = user_calls.call(function, args, kwargs)
        if isinstance(result, Tensor) and isinstance(result.vdevice, str):
            result.vdevice = self.devices.find(result.vdevice)
        if isinstance(result, DTensor) and isinstance(result.device_mesh, str):
            result.device_mesh = self.devices.mesh(result.device_mesh)
        if isinstance(result, records.MetaVar):  # it differs from its value only in kernels
            result = result.value
        if isinstance(result, records.DeviceForm):
            result = self.devices.find(f"{result.kind}:{result.number}")
        if isinstance(result, records.TeForm):
            if self.host is None:
                raise self.error(node, "R.emit_te belongs in a function")
            result = self.host.kernel_call(result, node)
        return self.evaluate(result, node, shared=shared) if isinstance(result, rx.Expr) else result

    def _on_listed_devices(
        self, function: OpDef, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Replace the names of devices among the arguments of an operator by the devices."""
        if not any(isinstance(value, str) for value in (*args, *kwargs.values())):
            return args, kwargs
        for i, parameter in enumerate(function.parameters):
            find: Callable[[str], VDevice | DeviceMesh]
            if VDevice in parameter.choices:
                find = self.devices.find
            elif DeviceMesh in parameter.choices:
                find = self.devices.mesh
            else:
                continue
            if i < len(args) and isinstance(args[i], str):
                args = [*args[:i], find(args[i]), *args[i + 1 :]]
            elif isinstance(kwargs.get(parameter.name), str):
                kwargs = kwargs | {parameter.name: find(kwargs[parameter.name])}
        return args, kwargs

    def called(
        self, function: rx.Expr, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> rx.Call:
        """A call of a function; for packed functions, with the struct info of the result."""
        kwargs = renamed(kwargs)
        for keyword in node.keywords:
            if keyword.arg not in ("sinfo_args", "type_args", "pure"):
                values = [*node.args, *(k.value for k in node.keywords)]
                if isinstance(function, rx.ExternFunc):
                    hint = "only sinfo_args and pure are keywords"
                elif len(node.keywords) > 1:
                    hint = "give the arguments in the order of the parameters, without their names"
                else:
                    hint = (
                        f"write {ast.unparse(node.func)}({', '.join(map(wording.shown, values))})"
                    )
                raise self.error(keyword, "a call of a function takes no keywords", hint=hint)
        attrs = {name: value for name, value in kwargs.items() if name == "pure"}
        return rx.Call(
            function,
            tuple(rx.convert_to_expr(a) for a in args),
            Attrs(attrs),
            sinfo_list(kwargs.get("sinfo_args", ())),
            span=self.span(node),
        )

    def plain(self, function: object, args: list[Any], node: ast.Call) -> list[Any]:
        """Bind the casts among the arguments of a call to variables (LEG-11).

        Errors:
            ParseError: an unknown shape is used as a value (LEG-5).
        """
        if isinstance(function, TypeName) or (
            isinstance(function, type) and issubclass(function, Annotation)
        ):
            return args
        starred = any(isinstance(arg, ast.Starred) for arg in node.args)
        nodes: Sequence[ast.expr] = [node] * len(args) if starred else node.args
        return [self.bind_casts(arg, at) for arg, at in zip(args, nodes, strict=True)]

    def bind_casts(self, value: Any, node: ast.expr) -> Any:
        """`value` with the casts in it bound to variables."""
        if isinstance(value, records.UnknownShape):
            raise self.error(
                node,
                "RuntimeDepShape is not a value: it belongs in annotations",
                rule="LEG-5",
                hint="R.shape_of(x) gives the shape of x when the program runs",
            )
        if isinstance(value, _CASTS) and self.host is not None:
            return self.host.cast(value, node)
        if isinstance(value, (tuple, list)) and any(isinstance(v, _SPECIAL) for v in value):
            inner = node.elts if isinstance(node, (ast.Tuple, ast.List)) else []
            nodes = inner if len(inner) == len(value) else [node] * len(value)
            bound = [self.bind_casts(v, at) for v, at in zip(value, nodes, strict=True)]
            if any(new is not old for new, old in zip(bound, value, strict=True)):
                return bound if isinstance(value, list) else tuple(bound)
        return value

    def _at(self, expr: rx.Expr, node: ast.expr) -> rx.Expr:
        """Set the position of `expr` if it is a new expression without one."""
        if expr.span is not None or isinstance(expr, (rx.Var, rx.GlobalVar)):
            return expr
        return replace(expr, span=self.span(node))  # type: ignore[type-var]

    @override
    def takes_ellipsis(self, owner: object) -> bool:
        return isinstance(owner, rx.Expr) or Evaluator.takes_ellipsis(self, owner)

    @override
    def on_subscript(self, owner: Any, index: Any, node: ast.Subscript) -> object:
        if not isinstance(owner, rx.Expr):
            result = self._by_index(owner, index, node)
            return self.evaluate(result, node) if isinstance(result, rx.Call) else result
        try:
            result = owner[index]
        except IndexError as error:
            raise self.error(node.slice, str(error), rule="DER-33") from None
        return self.evaluate(result, node) if isinstance(result, rx.Expr) else result

    def _by_index(self, owner: Any, index: Any, node: ast.Subscript) -> object:
        """`owner[index]` of a Python value; a call for dimensions at an unknown index."""
        dimensions = self._properties.get(node.value)
        if isinstance(dimensions, TensorSizes) and not isinstance(index, slice):
            if isinstance(index, IntImm):
                index = index.value
            if not hasattr(index, "__index__") or not -len(owner) <= index < len(owner):
                owner = dimensions
        return Evaluator.on_subscript(self, owner, index, node)

    def number(self, value: object, node: ast.expr) -> rx.Expr | None:
        """The scalar of a known `x.ndim` or `x.dtype.bits`; None for other values."""
        dtype = NUMBERS.get(node.attr) if isinstance(node, ast.Attribute) else None
        if dtype is None or type(value) is not int or node not in self._properties:
            return None
        return rx.PrimValue(ops.const(value, dtype), span=self.span(node))

    def hinted(self, error: RelaxpyError) -> None:
        """Add a hint for a property or number that is known only when the program runs."""
        hint = hint_for(error.about)
        if hint is None and error.diagnostic.hint is None:
            hint = wording.number_hint(error.about)
        if hint is not None:
            error.hinted(hint)

    def expression(self, value: object, node: ast.expr) -> rx.Expr:
        """Convert `value` to a Relax expression.

        Errors: ParseError at `node` if it is not one.
        """
        if isinstance(value, records.EmitForm):
            value = value.value
        value = self.bind_casts(value, node)
        if isinstance(value, (records.Form, ModuleRef, IRModule)):
            raise self.error(node, f"{wording.describe(value)} is not a value")
        try:
            expr = self._at(rx.convert_to_expr(value), node)
        except MisuseError as error:
            self.hinted(error)
            raise self.located(error, self.span(node)) from None
        return expr if self.host is None else self.host.evaluated(expr)


def _defines(left: object, method: str) -> bool:
    """True if `left` is an object of a user's class that defines the method."""
    kind = type(left)
    if not is_helper(kind) or hasattr(kind, "__array__"):
        return False
    return getattr(kind, method, None) is not getattr(object, method, None)


def _absent(
    function: OpDef, args: list[Any], kwargs: dict[str, Any], node: ast.Call
) -> ast.expr | None:
    """The argument of a required parameter, or the member of one, that is None."""
    nodes = dict(zip((p.name for p in function.parameters), node.args, strict=False))
    nodes |= {k.arg: k.value for k in node.keywords if k.arg is not None}
    values = dict(zip((p.name for p in function.parameters), args, strict=False)) | kwargs
    required = [p.name for p in function.parameters if p.required]
    written = ((nodes[n], values.get(n, n)) for n in required if n in nodes)
    members = (
        pair
        for node, value in written
        for pair in (
            zip(node.elts, value, strict=False)
            if isinstance(node, (ast.Tuple, ast.List)) and isinstance(value, (tuple, list))
            else [(node, value)]
        )
    )
    return next((node for node, value in members if value is None), None)


def is_plain(value: object) -> bool:
    """True if a value that gets a name remains a Python value: only Relax values are bound.

    A named tuple keeps the names of its fields.
    """
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return True
    if isinstance(value, (tuple, list)):
        return bool(value) and not any(_is_program_value(member) for member in value)
    return not isinstance(value, (bool, int, float)) and not _is_program_value(value)


def _is_program_value(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_is_program_value(member) for member in value)
    return isinstance(value, (rx.Expr, PrimExpr, records.Form))
