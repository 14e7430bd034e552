"""The state of a graph function while it is parsed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from typing_extensions import override

from relaxpy.errors import Diagnostic, RelaxpyError, Span, WellFormedError
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import free_vars
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script.language import records
from relaxpy.script.language.annotations import Devices, resolve
from relaxpy.script.language.graph_builder import GraphBuilder
from relaxpy.script.language.legacy import matched_sinfo
from relaxpy.script.language.wording import as_parse_error
from relaxpy.script.parser.evaluate.evaluator import TextReader
from relaxpy.script.parser.evaluate.guard import Guard
from relaxpy.script.parser.evaluate.macros import Unrolling
from relaxpy.script.parser.graph.expressions import GraphEvaluator
from relaxpy.script.parser.source import Program, Report, Scope, Statements
from relaxpy.support.dataclass import dataclass, replace

#: Adds a function that was defined elsewhere to the module, under its name.
Capture: TypeAlias = Callable[[rx.BaseFunc, str], rx.GlobalVar]
_MAY_CONTAIN_FUNCTIONS = frozenset((rx.Function, PrimFunc, rx.Tuple))


class Dataflow:
    """A dataflow block being parsed: the names of its outputs, each with its last binding."""

    def __init__(self, outputs: Mapping[str, ast.stmt | None]) -> None:
        self.outputs = outputs
        self.done = False


@dataclass(slots=True)
class Pending:
    """The annotation and the cast of the variable that the next if or local function binds.

    `name: sinfo` before it is an annotation, and `with R.match_cast(..., sinfo):` around it is a
    cast.
    """

    name: str = ""
    annotation: rx.StructInfo | None = None
    cast: rx.StructInfo | None = None


class Body:
    """A function being parsed."""

    def __init__(self) -> None:
        self.attrs: dict[str, object] = {}
        self.shape_vars: dict[str, object] = {}
        self.result: rx.Expr | None = None
        self.returned: ast.Return | None = None
        self.dataflow: Dataflow | None = None
        self.enclosing: list[ast.stmt] = []
        self.depth = 0
        self.pure = True
        self.pending = Pending()


class GraphState(TextReader, GraphBuilder):
    """The state of graph functions while they are parsed, and the location of errors in them."""

    module_hint = "put the function into the class of an @I.ir_module"
    values: GraphEvaluator

    def __init__(
        self,
        program: Program,
        scope: Scope,
        builder: BlockBuilder,
        *,
        guard: Guard,
        report: Report,
        devices: Devices,
        capture: Capture,
        module_names: Container[str] | None,
    ) -> None:
        GraphBuilder.__init__(self, builder, module_names)
        self.report = report
        self.values = GraphEvaluator(program, scope, guard)
        self.values.host = self  # type: ignore[assignment]  # GraphReader is the only subclass
        self.values.devices = devices
        self.statements = Statements(self.values, self.report)
        self.body: Body | None = None
        self.capture = capture
        #: The global function being parsed, and the error if it calls itself.
        self.not_recursive: tuple[rx.GlobalVar, Diagnostic] | None = None
        self._foreign: set[rx.Expr] = set()
        self.unrolling = Unrolling()
        self.values.shape_var_of = self.shape_var
        builder.context.span_of = self.values.position_of

    def shape_var(self, name: str) -> object:
        """The shape variable for a TypeVar of this name."""
        return self.now.shape_vars.setdefault(name, tir.Var(name, INT64))

    @property
    def now(self) -> Body:
        """The function being parsed."""
        assert self.body is not None
        return self.body

    @override
    @contextmanager
    def at(self, at: ast.expr | ast.stmt) -> Iterator[None]:
        """Locate errors of the builder at the operand, or else at `at`."""
        try:
            yield
        except RelaxpyError as error:
            raise self.values.located(error, self.span(at)) from None

    @override
    def expression(self, value: object, at: ast.expr) -> rx.Expr:
        return self.values.expression(value, at)

    @override
    def bindable(self, value: object, at: ast.expr) -> rx.Expr:
        return self.values.number(value, at) or GraphBuilder.bindable(self, value, at)

    def struct_info_at(self, value: object, at: ast.expr) -> rx.StructInfo:
        """The struct info of `value` in a body, where strings are not dimensions."""
        try:
            return resolve(value)
        except RelaxpyError as error:
            location = None
            for child in ast.walk(at):
                if isinstance(child, ast.Constant) and child.value == error.about:
                    location = child
            raise as_parse_error(error, self.span(location or at)) from None

    @override
    def cast_operands(
        self, form: records.MatchCastForm | records.MatchShapeForm, at: ast.expr
    ) -> tuple[rx.Expr, rx.StructInfo, Span | None]:
        nodes = at.args if isinstance(at, ast.Call) and at.args else [at]
        expr, span = self.expression(form.value, nodes[0]), self.span(nodes[0])
        if isinstance(form, records.MatchShapeForm):
            with self.at(at):
                expr = self.builder.normalize(expr)
                return expr, matched_sinfo(form, self.builder.struct_info_of(expr)), span
        location = nodes[1] if len(nodes) > 1 else at
        sinfo = self.struct_info_at(form.annotation, location)
        if isinstance(sinfo, rx.AnyStructInfo):
            sinfo = replace(sinfo, span=self.span(location))
        return expr, sinfo, span

    def evaluate(self, expr: rx.Expr, *, shared: bool) -> rx.Expr:
        """Bind `expr` once, before values that are evaluated later, and return its variable.

        Calls on variables of another function, which Python code may build, are left unchanged.
        """
        expr = self.with_global_vars(expr)
        if not isinstance(expr, (rx.Call, rx.TupleGetItem)) or expr in self._foreign:
            return expr
        if self._is_foreign(expr):
            self._foreign.add(expr)
            return expr
        if self.not_recursive is not None and isinstance(expr, rx.Call):
            gvar, diagnostic = self.not_recursive
            if expr.op is gvar:
                raise WellFormedError(diagnostic)
        return self.builder.evaluate(expr, shared=shared)

    def with_global_vars(self, expr: rx.Expr) -> rx.Expr:
        """Replace the functions of other programs that `expr` calls or mentions by GlobalVars."""
        match expr:
            case rx.Function() | PrimFunc():
                return self._global_var(expr)
            case rx.Call(op=op, args=args):
                if _MAY_CONTAIN_FUNCTIONS.isdisjoint(map(type, (op, *args))):
                    return expr
                callee = op if isinstance(op, Op) else self.with_global_vars(op)
                new = tuple(self.with_global_vars(arg) for arg in args)
                if callee is op and all(map(operator.is_, new, args)):
                    return expr
                return rx.Call(callee, new, expr.attrs, expr.sinfo_args, span=expr.span)
            case rx.Tuple(fields=fields):
                new = tuple(self.with_global_vars(field) for field in fields)
                return expr if all(map(operator.is_, new, fields)) else rx.Tuple(new, expr.span)
            case _:
                return expr

    def _global_var(self, func: rx.Function | PrimFunc) -> rx.Expr:
        """The GlobalVar of `func`, or `func` if it belongs to the function being parsed."""
        name = func.attrs.get("global_symbol")
        if name is None and isinstance(func, rx.Function) and free_vars(func):
            return func
        names = (known for known in self.scope.names() if self.scope.find(known) is func)
        return self.capture(func, str(name or next(names, "function")))

    def _is_foreign(self, expr: rx.Call | rx.TupleGetItem) -> bool:
        operands = expr.args if isinstance(expr, rx.Call) else (expr.tuple_value,)
        worklist = list(operands)
        while worklist:
            operand = worklist.pop()
            if isinstance(operand, rx.Var):
                if operand not in self.builder.context.variables:
                    return True
            elif isinstance(operand, rx.Tuple):
                worklist += operand.fields
            elif operand in self._foreign:
                return True
        return False

    def evaluated(self, expr: rx.Expr) -> rx.Expr:
        """The variable to which `expr` was bound when it was evaluated, or `expr` itself."""
        return self.builder.evaluated(self.with_global_vars(expr))


def ends_in(node: ast.expr, name: str) -> bool:
    """True if a path such as `R.output` ends in `name`."""
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return isinstance(node, ast.Name) and node.id == name


def if_keyword(node: ast.If) -> ast.expr:
    """A node with the position of the `if` of a statement."""
    keyword = ast.Name("if")
    keyword.lineno = keyword.end_lineno = node.lineno
    keyword.col_offset, keyword.end_col_offset = node.col_offset, node.col_offset + len("if")
    return keyword


def name_of(node: ast.FunctionDef) -> ast.expr:
    """A node with the position of the name in `def name(...)`."""
    return _name_after("def ", node)


def class_name_of(node: ast.ClassDef) -> ast.expr:
    """A node with the position of the name in `class name: ...`."""
    return _name_after("class ", node)


def _name_after(keyword: str, node: ast.FunctionDef | ast.ClassDef) -> ast.expr:
    name = ast.Name(node.name)
    name.lineno = name.end_lineno = node.lineno
    name.col_offset = node.col_offset + len(keyword)
    name.end_col_offset = name.col_offset + len(node.name.encode())
    return name


def declared_pure(node: ast.FunctionDef) -> bool | None:
    """The purity that `R.func_attr({"pure": ...})` declares for callers (LEG-15)."""
    for statement in node.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not ends_in(call.func, "func_attr") or not call.args:
            continue
        table = call.args[0]
        for key, value in (
            zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ()
        ):
            is_pure_key = isinstance(key, ast.Constant) and key.value == "pure"
            if is_pure_key and isinstance(value, ast.Constant) and isinstance(value.value, bool):
                return value.value
    return None
