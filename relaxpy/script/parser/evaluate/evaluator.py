"""Evaluates the Python expressions of a program from the syntax tree; Python never runs them."""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from typing_extensions import override

from relaxpy.errors import (
    MissingArgumentError,
    MisuseError,
    ParseError,
    ParseTypeError,
    RelaxpyError,
    Span,
    close_names,
    counted,
)
from relaxpy.ir.core.node import Node
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import Expr, TupleStructInfo
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import BY_ELEMENT, Buffer
from relaxpy.script.language import wording
from relaxpy.script.language.graph_builder import DefinitionBuilder
from relaxpy.script.language.records import is_helper
from relaxpy.script.parser.evaluate import conditions, displays, user_calls
from relaxpy.script.parser.evaluate.displays import VALUE_ERRORS
from relaxpy.script.parser.evaluate.guard import OPEN, Guard
from relaxpy.script.parser.source import (
    BUILTINS,
    MISSING,
    ModuleRef,
    Poison,
    Poisoned,
    Positioned,
    Program,
    Scope,
    quoted_program,
    unknown_name,
)
from relaxpy.support.entry import argument_node, last_name, node_about
from relaxpy.support.missing import NAMESPACES


class Fault(NamedTuple):
    """An error's message, location and hint."""

    node: ast.expr | ast.keyword
    message: str
    hint: str | None


def signature_fault(
    node: ast.Call,
    signature: inspect.Signature,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Fault | None:
    """The error of arguments that do not match a signature; None if they match."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return _arity_fault(node, signature, str(error))
    return None


def _arity_fault(node: ast.Call, signature: inspect.Signature, message: str) -> Fault:
    name = ast.unparse(node.func)
    parameters = signature.parameters
    empty = inspect.Parameter.empty
    plain = [parameter.replace(annotation=empty) for parameter in parameters.values()]
    hint = f"it is {name}{inspect.Signature(plain)}"
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for keyword in node.keywords:
        if keyword.arg is None:
            continue
        if keyword.arg not in parameters and not takes_any:  # what is missing may be meant by it
            near = close_names(keyword.arg, parameters)
            return Fault(keyword, f"{name} takes no keyword argument {keyword.arg!r}", near or hint)
        if f"'{keyword.arg}'" in message:
            return Fault(keyword, f"{name}: {message}", hint)
    positional = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    count, actual = len(positional), len(node.args)
    if message.startswith("too many") and actual > count:
        expected = counted(count, "positional argument")
        return Fault(node.args[count], f"{name} takes {expected}, found {actual}", hint)
    if message.startswith("missing"):
        missing = message.rpartition("'")[0].rpartition("'")[2]
        message = f"argument {missing!r} is missing"
    return Fault(node.func, f"{name}: {message}", hint)


def raised_at(error: BaseException) -> str | None:
    """The last line of the user's Python that ran before a function raised an error."""
    location, trace = None, error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if not frame.f_globals.get("__name__", "").startswith("relaxpy."):
            location = f"raised at {frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return location


#: Replacements for methods that change a list: lists of values are tuples of the program.
_MUTATORS = {
    "append": "a tuple does not change: write {0} = [*{0}, value]",
    "extend": "a tuple does not change: write {0} = [*{0}, *values]",
    "insert": "a tuple does not change: write {0} = [value, *{0}]",
}


def namespace_hint(scope: Scope, name: str) -> str | None:
    """A replacement for a name that a namespace has, or that methods have."""
    if name in ("self", "cls"):
        return "functions of a module are called by the name of the class, or by `cls = ...`"
    spaces = {known: scope.find(known) for known in ("R", "T", "I")}
    paths = [
        f"{known}.{name}"
        for known, space in spaces.items()
        if name in getattr(space, "__all__", ()) or wording.offers(space, name)
    ]
    paths = paths or wording.operators_called(name)
    return f"did you mean {' or '.join(f'`{f}`' for f in paths[:2])}?" if paths else None


def unknown_attribute(program: Program, owner: object, node: ast.Attribute) -> ParseError:
    """Create the error for an attribute that `owner` does not have, located at its name."""
    known = {name for name in dir(owner) if not name.startswith("_")}
    display_name = ast.unparse(node.value)
    if isinstance(owner, ModuleRef):
        return program.error(
            last_name(node),
            f"the module has no function {node.attr!r}",
            rule="SC-1",
            hint=close_names(node.attr, known) or f"it has {', '.join(sorted(known)[:9])}",
        )
    is_space = inspect.ismodule(owner) or hasattr(owner, "_public_names")
    if is_space:
        known = set(getattr(owner, "__all__", known)) | set(wording.public_names(owner))
        hint = wording.attribute_hint(display_name, node.attr, known)
    elif isinstance(owner, Expr):
        in_place = node.attr in _MUTATORS and isinstance(owner.struct_info, TupleStructInfo)
        name = display_name
        hint = (
            _MUTATORS[node.attr].format(name) if in_place else wording.member_hint(node.attr, name)
        )
    elif isinstance(owner, IRModule) and node.attr in owner:
        hint = f'write {display_name}["{node.attr}"]'
    else:
        hint = close_names(node.attr, known)
    subject = f"{display_name} has" if is_space else f"{wording.describe(owner)} has"
    return program.error(last_name(node), f"{subject} no attribute {node.attr!r}", hint=hint)


_BINARY: dict[type[ast.operator], tuple[Callable[[Any, Any], object], str]] = {
    ast.Add: (operator.add, "+"),
    ast.Sub: (operator.sub, "-"),
    ast.Mult: (operator.mul, "*"),
    ast.Div: (operator.truediv, "/"),
    ast.FloorDiv: (operator.floordiv, "//"),
    ast.Mod: (operator.mod, "%"),
    ast.Pow: (operator.pow, "**"),
    ast.LShift: (operator.lshift, "<<"),
    ast.RShift: (operator.rshift, ">>"),
    ast.BitAnd: (operator.and_, "&"),
    ast.BitOr: (operator.or_, "|"),
    ast.BitXor: (operator.xor, "^"),
    ast.MatMult: (operator.matmul, "@"),
}
_UNARY: dict[type[ast.unaryop], tuple[Callable[[Any], object], str]] = {
    ast.USub: (operator.neg, "-"),
    ast.UAdd: (operator.pos, "+"),
    ast.Invert: (operator.invert, "~"),
}


class Evaluator:
    """Evaluates expression nodes; subclasses define the operators on IR values.

    `guard` decides what text may access: everything in a function of the user, little in text that
    may be hostile. `shape_var_of` returns the shape variable for the name of a TypeVar.
    """

    def __init__(self, program: Program, scope: Scope, guard: Guard = OPEN) -> None:
        self.program = program
        self.scope = scope
        self.guard = guard
        self.shape_var_of: Callable[[str], object] | None = None
        self._dots: set[ast.expr] = set()
        """Where `...` may stand."""
        self._cases: dict[type[ast.expr], Callable[[Any], object]] = {
            ast.Name: self._name,
            ast.Constant: self._constant,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.Subscript: self._subscript,
            ast.BinOp: self._binop,
            ast.UnaryOp: self._unaryop,
            ast.Slice: self._slice,
            **{kind: partial(read, self) for kind, read in displays.READERS.items()},
            **{kind: partial(read, self) for kind, read in conditions.READERS.items()},
        }

    def value(self, node: ast.expr) -> Any:
        """The value of an expression.

        Errors:
            ParseError and similar errors, located at the smallest subexpression that causes them.
            Poisoned: a name in it has no value, since its definition has an error.
        """
        case = self._cases.get(type(node))
        if case is None:
            raise self.error(
                node,
                f"{wording.construct(node)} cannot occur in a program",
                hint=wording.construct_hint(node),
            )
        if self.guard.counts:
            self.guard.step(node, self)
            result = case(node)
            self.guard.result(result, node, self)
            return result
        return case(node)

    def error(
        self, node: Positioned, message: str, kind: type[ParseError] = ParseError, **details: Any
    ) -> ParseError:
        """Create the error `message` at `node`."""
        return self.program.error(node, message, kind, **details)

    def span(self, node: Positioned) -> Span:
        """The span of `node`."""
        return self.program.span(node)

    @contextmanager
    def reading(self, program: Program, scope: Scope) -> Iterator[None]:
        """Evaluate nodes of `program` in `scope` until the context ends."""
        outer = self.program, self.scope
        self.program, self.scope = program, scope
        try:
            yield
        finally:
            self.program, self.scope = outer

    def quoted(self, literal: ast.Constant) -> Any:
        """The value of the expression inside a string literal."""
        self.guard.step(literal, self, len(str(literal.value)))
        tree, inner = quoted_program(self.program, literal)
        outer = self.program
        self.program = inner
        try:
            return self.value(tree)
        finally:
            self.program = outer

    def iterable(self, value: Any, node: ast.expr) -> Iterable[object]:
        """The members of a Python value.

        Errors: ParseError if it has no members that are known while the program is parsed.
        """
        try:
            members: Iterable[object] = user_calls.members(value)
        except RelaxpyError as error:
            raise wording.as_parse_error(error, self.program.span(node)) from None
        except VALUE_ERRORS:
            raise self.error(node, f"{wording.describe(value)} cannot be iterated over") from None
        return self.guard.members(members, node, self)

    # --- extensions of Python's operators

    def operand(self, value: Any) -> Any:
        """Convert `value` to the operand of an operator."""
        return value

    def on_binary(self, sign: str, left: object, right: object) -> object:
        """`left sign right` if the language overrides Python, else MISSING."""
        return MISSING

    def on_unary(self, sign: str, operand: object) -> object:
        """`sign operand` if the language overrides Python, else MISSING."""
        return MISSING

    def on_call(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """The result of a call."""
        return user_calls.call(function, args, kwargs)

    def truth(self, value: object, node: ast.expr, used_by: ast.expr | None = None) -> bool:
        """The truth value of a Python value.

        Errors: ParseError for a value of the program, which is not known at parse time.
        """
        if isinstance(value, Node):
            hint = None if used_by is None else wording.truth_hint(used_by)
            raise self.error(
                node,
                f"the truth value of {wording.describe(value)} is not known at parse time",
                hint=BY_ELEMENT if isinstance(value, Buffer) else hint,
            )
        try:
            return user_calls.truth(value)
        except VALUE_ERRORS as error:
            raise self.error(node, str(error)) from None

    # --- names and attributes

    def _name(self, node: ast.Name) -> object:
        self.guard.name(node.id, node, self)
        value = self.scope.use(node.id)
        if value is MISSING:
            raise self.unknown(node)
        if isinstance(value, Poison):
            raise Poisoned
        if isinstance(value, TypeVar) and self.shape_var_of is not None:
            return self.shape_var_of(value.__name__)
        return value

    def unknown(self, node: ast.Name) -> ParseError:
        """Create the error for an unknown name."""
        error = unknown_name(node.id, self.scope.names())
        if node.id in NAMESPACES:
            hint: str | None = NAMESPACES[node.id]
            if self.guard.counts:
                hint = f"extra_vars replaces I, R and T: add {node.id!r} to it, or {hint}"
            return self.error(node, error.diagnostic.message, type(error), hint=hint)
        hint, rule = wording.binding_hint(self.program.tree, node)
        hint = (
            hint
            or error.diagnostic.hint
            or namespace_hint(self.scope, node.id)
            or wording.library_hint(node.id)
        )
        return self.error(node, error.diagnostic.message, type(error), hint=hint, rule=rule)

    def _constant(self, node: ast.Constant) -> object:
        if node.value is Ellipsis and node in self._dots:
            return node.value
        if node.value is Ellipsis or isinstance(node.value, (bytes, complex)):
            raise self.error(node, f"{node.value!r} has no meaning in a program")
        return node.value

    def _attribute(self, node: ast.Attribute) -> object:
        owner = self.value(node.value)
        return self.attribute_of(owner, node)

    def attribute_of(self, owner: object, node: ast.Attribute) -> object:
        """Attribute `node.attr` of `owner`."""
        try:
            return self.guard.attribute(owner, node, self)
        except AttributeError:
            raise self.unknown_attribute(owner, node) from None
        except MisuseError as error:
            raise wording.as_parse_error(error, self.span(node)) from None
        except RelaxpyError:
            raise
        except VALUE_ERRORS as error:  # raised by a property of a user's class
            message = f"{ast.unparse(node)}: {type(error).__name__}: {error}"
            location = raised_at(error)
            notes = () if location is None else (location,)
            raise self.error(last_name(node), message, notes=notes) from None

    def unknown_attribute(self, owner: object, node: ast.Attribute) -> ParseError:
        """Create the error for an attribute that `owner` does not have, located at its name."""
        return unknown_attribute(self.program, owner, node)

    # --- calls and subscripts

    def arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The values of the arguments of a call."""
        args: list[Any] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                args += displays.starred(self, arg)
            else:
                args.append(self.value(arg))
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            added = {keyword.arg: value} if keyword.arg is not None else value
            if not isinstance(added, Mapping) or not all(isinstance(k, str) for k in added):
                raise self.error(keyword.value, "** takes a dict keyed by strings")
            for name in added:
                if name in kwargs:
                    raise self.error(keyword, f"argument {name!r} is given twice")
            kwargs.update(added)
        return args, kwargs

    def _call(self, node: ast.Call) -> object:
        if conditions.is_getattr(node) and self.scope.find("getattr") is MISSING:
            owner, name = map(self.value, node.args)
            return self.attribute_of(owner, conditions.attribute_node(node, name, self))
        function = self.value(node.func)
        args, kwargs = self.arguments(node)
        return self.invoke(function, args, kwargs, node)

    def invoke(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """The result of a call; every call in a program is evaluated here."""
        self.guard.call(function, args, kwargs, node, self)
        try:
            replacement = conditions.REPLACEMENTS.get(id(function))
            if replacement is not None and args and not kwargs:
                return replacement(self, *args, node=node)
            kwargs = conditions.with_key(self, function, kwargs, node)
            conditions.check_lookup(function, args)
            return self.on_call(function, args, kwargs, node)
        except RelaxpyError as error:
            if isinstance(error, MisuseError) and error.about is None:
                fault = self._signature_error(node, function, args, kwargs)
                if fault is not None:
                    raise fault from None
                if (function is max or function is min) and len(args) > 1:
                    error = error.hinted(f"write T.{ast.unparse(node)}")
            if error.diagnostic.rule == "AST-21" and isinstance(about := error.about, Expr):
                hint = wording.array_hint(node, ast.unparse(node.func).rpartition(".")[2], about)
                if hint is not None and error.diagnostic.hint is None:
                    error = error.hinted(hint)
            missing = isinstance(error, MissingArgumentError)
            where = node.func if missing else argument_node(node, args, kwargs, error.about) or node
            location = raised_at(error) if isinstance(error, MisuseError) else None
            raise wording.as_parse_error(error, self.span(where)).noted(location) from None
        except VALUE_ERRORS as error:
            raise self._call_error(node, function, args, kwargs, error) from None
        except RecursionError:
            if not is_helper(function):
                raise
            message = f"{ast.unparse(node.func)} calls itself too often"
            raise self.error(node, message) from None

    def _call_error(
        self,
        node: ast.Call,
        function: Any,
        args: list[Any],
        kwargs: dict[str, Any],
        error: Exception,
    ) -> ParseError:
        name = ast.unparse(node.func)
        if not callable(function):
            return self.error(node.func, f"{wording.describe(function)} cannot be called")
        for arg, value in zip(node.args, args, strict=False):
            operands = _operands_of(function)
            members = value if isinstance(value, (list, tuple)) else (value,)
            of_program = next((each for each in members if isinstance(each, Node)), None)
            if of_program is not None and operands is not None:
                hint = wording.array_hint(node, name.rpartition(".")[2], of_program)
                message = f"{name} takes {operands}, found {wording.describe(of_program)}"
                return self.error(arg, message, hint=hint)
            if isinstance(value, (Expr, Buffer)) and function is len:
                tensor, display_name = isinstance(value, Expr), wording.shown(arg)
                hint = (
                    wording.member_hint("shape", display_name)
                    if tensor
                    else f"write {display_name}.shape[0]"
                )
                return self.error(arg, f"{wording.describe(value)} has no length", hint=hint)
            if isinstance(value, Node) and function is BUILTINS.get(name):
                tensor, display_name = isinstance(value, Expr), wording.shown(arg)
                if tensor:
                    hint = wording.member_hint(name, display_name) or wording.number_hint(value)
                elif isinstance(value, tir.IntImm):
                    hint = f"its value is known: write {name}(int({display_name}))"
                else:
                    hint = wording.scalar_hint(name, display_name)
                message = f"{name} is for Python's values, found {wording.describe(value)}"
                return self.error(arg, message, hint=hint)
        fault = self._signature_error(node, function, args, kwargs)
        if fault is not None:
            return fault
        kind = "" if isinstance(error, (TypeError, ValueError)) else f"{type(error).__name__}: "
        location = raised_at(error)
        notes = () if location is None else (location,)
        by_numpy = "__array_" in str(error)  # it refuses expressions: `Expr.__array_function__`
        hint = "NumPy takes arrays: call operators of R, as R.maximum(x, y)" if by_numpy else None
        return self.error(node, f"{name}: {kind}{error}", notes=notes, hint=hint)

    def _signature_error(
        self, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]
    ) -> ParseError | None:
        """The error for arguments that do not match the signature of `function`, or None."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return None
        fault = signature_fault(node, signature, args, kwargs)
        return fault and self.error(fault.node, fault.message, ParseTypeError, hint=fault.hint)

    def _subscript(self, node: ast.Subscript) -> object:
        owner = self.value(node.value)
        if self.takes_ellipsis(owner):
            self._dots.update(
                node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            )
        index = self.value(node.slice)
        self.guard.subscript(owner, index, node, self)
        try:
            return self.on_subscript(owner, index, node)
        except RelaxpyError as error:
            argument = node_about(node.slice, index, error.about)
            raise wording.as_parse_error(error, self.span(argument or node)) from None
        except VALUE_ERRORS as error:
            kind = f"{type(error).__name__}: " if isinstance(error, KeyError) else ""
            raise self.error(node, f"{kind}{error}") from None

    def takes_ellipsis(self, owner: object) -> bool:
        """True if `...` may be an index of `owner`."""
        return isinstance(owner, np.ndarray)

    def on_subscript(self, owner: Any, index: Any, node: ast.Subscript) -> object:
        """`owner[index]`."""
        if not hasattr(owner, "__getitem__") and not hasattr(owner, "__class_getitem__"):
            name = wording.shown(node.value)
            hint = f'write A = T.match_buffer({name}, (4, 4), "float32") first, and index A'
            is_handle = isinstance(owner, tir.PrimExpr) and owner.dtype == "handle"
            message = f"{wording.describe(owner)} cannot be indexed"
            raise self.error(node.value, message, hint=hint if is_handle else None)
        conditions.check_index(owner, index)
        return user_calls.item(owner, index)

    def _slice(self, node: ast.Slice) -> slice:
        bounds = (node.lower, node.upper, node.step)
        return slice(*(None if bound is None else self.value(bound) for bound in bounds))

    # --- operators

    def _binop(self, node: ast.BinOp) -> object:
        # `a + b + c + …` nests to the left: evaluate it from its innermost operand outwards.
        chain = [node]
        while isinstance(chain[-1].left, ast.BinOp):
            chain.append(chain[-1].left)
        left = self.value(chain[-1].left)
        for step in reversed(chain):
            left = self.binary(step.op, left, self.value(step.right), step)
        return left

    def binary(self, kind: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        """`left kind right`; errors are located at `node`."""
        function, sign = _BINARY[type(kind)]
        try:
            left, right = self.operand(left), self.operand(right)
            result = self.on_binary(sign, left, right)
            if result is not MISSING:
                return result
            self.guard.binary(sign, left, right, node, self)
            return user_calls.operate(function, left, right)
        except RelaxpyError as error:
            raise wording.as_parse_error(error, self._operand(node, left, right, error)) from None
        except VALUE_ERRORS as error:
            message = str(error.args[-1] if error.args else error)  # errno precedes the text
            if isinstance(error, TypeError):
                operands = f"{wording.describe(left)} and {wording.describe(right)}"
                message = f"{sign} is not defined between {operands}"
            is_buffer = isinstance(left, Buffer) or isinstance(right, Buffer)
            hint = BY_ELEMENT if is_buffer else None
            if sign == "**" and isinstance(node, ast.BinOp) and isinstance(left, tir.PrimExpr):
                hint = f"write T.pow({ast.unparse(node.left)}, {ast.unparse(node.right)})"
            raise self.error(node, message, hint=hint) from None

    def _operand(self, node: ast.expr, left: object, right: object, error: RelaxpyError) -> Span:
        if isinstance(node, ast.BinOp) and error.about is not None:
            if error.about is left:
                return self.span(node.left)
            if error.about is right:
                return self.span(node.right)
        return self.span(node)

    def _unaryop(self, node: ast.UnaryOp) -> object:
        operand = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            result = self.on_unary("not", operand)
            if result is not MISSING:
                return result
            if isinstance(operand, tir.PrimExpr):
                return conditions.computed(self, node, ops.logical_not, operand)
            return not self.truth(operand, node.operand, node)
        function, sign = _UNARY[type(node.op)]
        try:
            operand = self.operand(operand)
            result = self.on_unary(sign, operand)
            return user_calls.operate(function, operand) if result is MISSING else result
        except RelaxpyError as error:
            raise wording.as_parse_error(error, self.span(node)) from None
        except VALUE_ERRORS:
            hint = BY_ELEMENT if isinstance(operand, Buffer) else None
            message = f"{sign} is not defined on {wording.describe(operand)}"
            raise self.error(node, message, hint=hint) from None


def _operands_of(function: object) -> str | None:
    """Name the operands of a function of another library, for messages."""
    module = str(getattr(function, "__module__", None)).partition(".")[0]
    return "arrays" if isinstance(function, np.ufunc) else _OPERANDS.get(module)


_OPERANDS: Final = {
    "jax": "arrays of JAX",
    "math": "numbers",
    "numpy": "arrays",
    "torch": "tensors of PyTorch",
}


class TextReader(DefinitionBuilder):
    """Base of the readers of definitions: the errors and spans are those of the text.

    That is the text that is being parsed, or during the expansion of a macro, its text.
    """

    values: Evaluator

    @property
    def program(self) -> Program:
        """The text."""
        return self.values.program

    @property
    def scope(self) -> Scope:
        """The scope of names in that text."""
        return self.values.scope

    @override
    def error(
        self, at: Positioned, message: str, kind: type[RelaxpyError] | None = None, **details: Any
    ) -> ParseError:
        return self.program.error(at, message, kind or ParseError, **details)  # type: ignore[arg-type]

    @override
    def span(self, at: Positioned) -> Span:
        return self.program.span(at)
