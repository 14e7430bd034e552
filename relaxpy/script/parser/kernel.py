"""Parses one `@T.prim_func`: its signature, its statements, and the values of expressions."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import unwrap
from types import FunctionType
from typing import Any, Final, TypeVar

import numpy as np
from typing_extensions import override

from relaxpy.errors import Diagnostic, RelaxpyError, StructInfoTypeError, warn
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.nodes import BaseFunc, Expr, GlobalVar
from relaxpy.ir.relax.nodes.expr import set_name
from relaxpy.ir.te.text import KernelText
from relaxpy.ir.tir import expr as tir, intrin, ops, stmt
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, index_count, vector_index
from relaxpy.ir.tir.expr import PrimExpr, StringImm, Var
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.script.language import hardware, kernel_builder, records, tir_directives
from relaxpy.script.language.annotations import is_annotation
from relaxpy.script.language.records import PendingFrame, handling, is_helper
from relaxpy.script.language.wording import as_parse_error, describe, shown
from relaxpy.script.parser.evaluate import displays, user_calls
from relaxpy.script.parser.evaluate.evaluator import Evaluator, TextReader
from relaxpy.script.parser.evaluate.guard import OPEN, Guard
from relaxpy.script.parser.evaluate.macros import Macro, Unrolling, macro_expansion, of_text
from relaxpy.script.parser.source import (
    MISSING,
    POISON,
    Poisoned,
    Positioned,
    Program,
    Report,
    Scope,
    Statements,
    bound_names,
    docstring_removed,
    header,
    refusal,
    type_parameters,
)
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import argument_node

_TAKE_MEMORY = frozenset(
    [
        *(intrin.call_packed, intrin.call_cpacked, intrin.call_extern, intrin.call_pure_extern),
        *(intrin.call_intrin, *(unwrap(f) for f in hardware.INTRINSICS.values())),
    ]
)


class KernelEvaluator(Evaluator):
    """Evaluates the expressions of a kernel; functions called there may add statements to it."""

    def __init__(self, program: Program, scope: Scope, guard: Guard, reader: KernelReader) -> None:
        Evaluator.__init__(self, program, scope, guard)
        self.reader = reader
        self.shape_var_of = reader.shape_var
        self.unrolling = Unrolling()
        self.open_macros = 0

    @override
    def operand(self, value: Any) -> Any:
        return ops.convert(value) if isinstance(value, BufferRegion) else value

    @override
    def on_call(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        if isinstance(function, GlobalVar):
            if kwargs:
                raise self.error(node.keywords[0], "a function of the module takes no keywords")
            values = [intrin.pointer_or_value(self._without_views(a)) for a in args]
            return tir.Call(self.reader.returns(function, len(values)) or "", function, values)
        if isinstance(function, BaseFunc):
            raise self.error(
                node.func,
                "a kernel calls kernels of its own module",
                rule="TOP-7",
                hint="put both into the class of an @I.ir_module, and write Module.name(...)",
            )
        if isinstance(function, KernelText):
            return self.expand(of_text(function), args, kwargs, node)
        if isinstance(function, Macro):
            self.check_macro(function, node)
            return self.expand(function, args, kwargs, node)
        if is_helper(function):
            return self.call_helper(function, args, kwargs, node)
        if isinstance(function, FunctionType) and unwrap(function) in _TAKE_MEMORY:
            args = [*map(self._without_views, args)]
        try:
            result = user_calls.call(function, args, kwargs)
        except StructInfoTypeError as error:
            raise error.hinted(self._scalar_hint(node)) from None
        if isinstance(result, Expr):
            message = f"{ast.unparse(node.func)} is an operator of tensors"
            raise self.error(node.func, message, rule="TOP-7", hint=self._scalar_hint(node))
        return result

    def _without_views(self, arg: Any) -> Any:
        """An argument of a function, which gets a view by its address; its data are the owner's."""
        is_view = isinstance(arg, Buffer) and self.reader.owners.get(arg.data, arg) is not arg
        return intrin.address_of(arg) if is_view else arg

    def _scalar_hint(self, node: ast.Call) -> str:
        """The hint for a tensor operator in a kernel: the scalar function to use instead."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = {"maximum": "max", "minimum": "min", "power": "pow"}.get(name, name)
        if name in getattr(self.scope.find("T"), "__all__", ()):
            return f"a kernel computes numbers: write T.{name}(...)"
        return "a kernel computes numbers with operators and functions of T, such as T.max(x, y)"

    def loop_form(self, node: ast.expr) -> records.LoopForm:
        """The record of the iterations of a loop."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = self.value(node.func)
            if function is builtins.range:
                args, kwargs = self.arguments(node)
                if kwargs or len(args) not in (1, 2, 3):
                    raise self.error(
                        node, "range in a kernel takes an end, or a start, an end and a step"
                    )
                try:
                    return tir_directives.serial(*args[:2], step=args[2] if args[2:] else 1)
                except RelaxpyError as error:
                    at = argument_node(node, args, kwargs, error.about) or node
                    raise as_parse_error(error, self.program.span(at)) from None
        value = self.value(node)
        if isinstance(value, records.LoopForm):
            return value
        if isinstance(value, range):
            return tir_directives.serial(value.start, value.stop, step=value.step)
        raise self.error(
            node,
            f"a loop in a kernel runs over range, T.grid or the like, found {describe(value)}",
            hint=f"write range({shown(node)})"
            if isinstance(value, (int, PrimExpr))
            else "a Python function that the kernel calls can loop over values of Python",
        )

    def check_macro(self, macro: Macro, node: ast.Call) -> None:
        """Check that a macro of a user can be expanded at `node`.

        Errors:
            ParseError: it is a macro of Relax, or it returns a value.
        """
        if macro.options.dialect != "tir":
            raise self.error(node.func, "a macro of Relax cannot be used in a kernel")
        for child in ast.walk(macro.node):
            if isinstance(child, ast.Return):
                hint = "write its result to a buffer, or make it a Python function"
                raise macro.program.error(child, "a macro of a kernel returns nothing", hint=hint)

    def expand(
        self, macro: Macro, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """Parse the statements of a macro here; the value of the return at its end, or None."""
        self.unrolling.add(len(macro.node.body), node, self)
        self.open_macros += 1
        try:
            with macro_expansion(self, macro, args, kwargs, node):
                match macro.body():
                    case [*statements, ast.Return(value=ast.expr() as result)]:
                        self.reader.read(statements)
                        return self.value(result)
                    case statements:
                        self.reader.read(statements)
                        return None
        except RecursionError:
            if self.open_macros > 1:
                raise
            raise self.error(node, f"macro {macro.node.name} uses itself too often") from None
        finally:
            self.open_macros -= 1

    def call_helper(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """The result of a user's function, in which the directives of T are eager.

        Errors:
            ParseError: it creates a frame that it neither enters nor returns, or leaves one open.
        """
        frames: list[PendingFrame] = []
        opened: list[PendingFrame] = []

        def handler(form: records.Form) -> Any:
            if not isinstance(form, kernel_builder.FRAMES):
                return self.reader.apply(form, node)
            frames.append(PendingFrame(form, self.reader.unnamed_frame(form, node), opened))
            return frames[-1]

        try:
            with handling(handler):
                result = user_calls.call(function, args, kwargs)
            for frame in frames:
                if frame in opened or not (frame.is_used or frame is result):
                    fault = "entered and never left" if frame in opened else "never entered"
                    raise self.error(node, f"{describe(frame.form)} is {fault}", hint="with ...:")
        finally:
            while opened:
                opened[-1].__exit__(GeneratorExit, GeneratorExit(), None)
            for frame in frames:
                frame.is_used = True
        return result.form if isinstance(result, PendingFrame) else result


_ANNOTATE: Final = 'annotate it, as in A: T.Buffer((4, 4), "float32"), a: T.handle or n: T.int32'


def parameter_hint(annotation: object) -> str:
    """A replacement for an annotation that declares no parameter."""
    if annotation is records.BufferSpec:
        return 'a buffer has a shape and a datatype, as in T.Buffer((4, 4), "float32")'
    if is_annotation(annotation):
        return 'tensors of a kernel are buffers, as in T.Buffer((4, 4), "float32")'
    if annotation in (int, float, bool):
        return "scalars are of a datatype, as in n: T.int32"
    if isinstance(annotation, str):
        return "annotations are not strings: write n: T.int32"
    return _ANNOTATE


def is_same(present: object, value: object) -> bool:
    """True if a name for `present` may be bound again, to `value`."""
    if isinstance(value, records.MetaVar):
        value = value.value
        if isinstance(value, (bool, int, float, str)):
            return type(present) is type(value) and present == value
    return present is value


def may_read(value: PrimExpr) -> bool:
    """True if `value` may depend on memory, which later stores change."""
    return any(isinstance(child, (BufferLoad, tir.Call)) for child in walk(value))


#: The frames without a value that `as` could name.
_VALUELESS = (
    *(records.BlockForm, records.InitForm, records.WhileForm, records.IfForm, records.BranchForm),
    *(records.AttrForm, records.RealizeForm, records.AssertForm),
)


class KernelReader(TextReader, kernel_builder.KernelBuilder):
    """Parses the definition of one kernel; the locations of statements are syntax tree nodes.

    `returns` maps a function of the module, and a number of arguments, to the result datatype.
    """

    values: KernelEvaluator

    def __init__(
        self,
        program: Program,
        scope: Scope,
        *,
        guard: Guard = OPEN,
        report: Report | None = None,
        returns: Callable[[GlobalVar, int], DataType | None] = lambda _, __: None,
    ) -> None:
        kernel_builder.KernelBuilder.__init__(self)
        self.report = report if report is not None else Report()
        self.returns = returns
        self.values = KernelEvaluator(program, scope, guard, self)
        self.shape_vars: dict[str, Var] = {}
        self.block_names: set[str] = set()

    @override
    @contextmanager
    def block(self, form: records.BlockForm, at: Any) -> Iterator[None]:
        """Open a block; a macro that is used again gets another name for it, as in TVM 0.23."""
        name, count = form.name, 0
        while self.values.open_macros and name and name in self.block_names:
            count += 1
            name = f"{form.name}_{count}"
        self.block_names.add(name)
        with kernel_builder.KernelBuilder.block(self, records.BlockForm(name, form.no_realize), at):
            yield

    def shape_var(self, name: str) -> Var:
        """The variable for a TypeVar of this name."""
        if name not in self.shape_vars:
            self.shape_vars[name] = Var(name, INT64)
            self.named.add(self.shape_vars[name])
        return self.shape_vars[name]

    @override
    def call_at(
        self, at: Positioned, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        try:
            return function(*args, **kwargs)
        except RelaxpyError as error:
            raise as_parse_error(error, self.program.span(at)) from None
        except displays.VALUE_ERRORS as error:
            raise self.error(at, str(error)) from None

    # --- the definition

    def function(self, node: ast.FunctionDef, *, symbol: str | None = None) -> PrimFunc | None:
        """Parse the kernel defined at `node`; None if it has errors, which are reported."""
        before = len(self.report.errors)
        with self.scope.inner():
            self.read_signature(node)
            with self.body("function") as body:
                self.read(docstring_removed(node.body))
            if len(self.report.errors) > before:
                return None
            try:
                name = node.name if symbol is None else symbol
                return self.finish(body, name, private=symbol is None, at=node)
            except RelaxpyError as error:
                self.report.add(as_parse_error(error, self.program.span(node)))
                return None

    def read_signature(self, node: ast.FunctionDef) -> None:
        """Bind the parameters."""
        spec = node.args
        for name in type_parameters(node, self.error, self.report):
            self.scope.set(name, self.shape_var(name))
        for error in self.program.repeated(spec):
            self.report.add(error)
        for extra in (spec.vararg, spec.kwarg, *spec.kwonlyargs):
            if extra is not None:
                self.report.add(self.error(extra, "a kernel has plain positional parameters only"))
        for default in (*spec.defaults, *filter(None, spec.kw_defaults)):
            self.report.add(self.error(default, "parameters of a kernel have no defaults"))
        for arg in (*spec.posonlyargs, *spec.args):
            parameter: object = POISON
            try:
                parameter = self.declared_parameter(arg)
            except Poisoned:
                pass
            except RelaxpyError as error:
                self.report.add(as_parse_error(error, self.program.span(arg)))
            self.scope.set(arg.arg, parameter)
        if node.returns is not None:
            try:
                self.ret_type = self.return_type(node.returns)
            except Poisoned:
                return
            except RelaxpyError as error:
                self.report.add(error)

    def declared_parameter(self, arg: ast.arg) -> Var | Buffer:
        """The parameter that `arg` declares."""
        if arg.annotation is None:
            raise self.error(arg, f"parameter {arg.arg!r} has no annotation", hint=_ANNOTATE)
        annotation = self.values.value(arg.annotation)
        if isinstance(annotation, records.BufferSpec):
            buffer: Buffer = self.call_at(
                arg.annotation, annotation.create, arg.arg, self.program.span(arg)
            )
            self.parameter(arg.arg, buffer)
            return buffer
        var = kernel_builder.typed_var(arg.arg, annotation)
        if var is None:
            raise self.error(
                arg.annotation,
                f"a parameter is a buffer, a handle or a scalar, found {describe(annotation)}",
                hint=parameter_hint(annotation),
            )
        self.parameter(arg.arg, var)
        return var

    def return_type(self, node: ast.expr) -> DataType | None:
        """The datatype that a return annotation names."""
        dtype: DataType | None = self.call_at(
            node, kernel_builder.result_type, self.values.value(node)
        )
        return dtype

    # --- statements

    def read(self, nodes: Sequence[ast.stmt]) -> None:
        """Read `nodes` into the innermost body."""
        in_macro = self.values.open_macros > 0
        Statements(self.values, self.report, in_macro=in_macro).read(nodes, self.statement)

    def read_inside(
        self, nodes: Sequence[ast.stmt], names: dict[str, object] | None = None
    ) -> None:
        """Read `nodes` into the innermost body, in a new scope with these names."""
        with self.scope.block(names):
            self.read(nodes)

    def inner(self, nodes: Sequence[ast.stmt]) -> stmt.Stmt:
        """Read `nodes` as one statement, in a new scope."""
        with self.body() as body:
            self.read_inside(nodes)
        return body.fold()

    def statement(self, node: ast.stmt) -> None:
        """Read one statement."""
        if self.bodies[-1].kind == "cases" and not isinstance(node, ast.With):
            self.check_position(header(node))
        match node:
            case ast.Assign():
                self.assign(node)
            case ast.For():
                self.for_loop(node)
            case ast.Expr():
                self.expression(node.value)
            case ast.With(items=items, body=body):
                self.with_items(items, body)
            case ast.If():
                self.python_if(node)
            case ast.AugAssign():
                self.change(node)
            case ast.AnnAssign():
                self.annotated(node)
            case ast.While():
                self.python_while(node)
            case ast.Return():
                self.returned(node)
            case ast.Break() | ast.Continue():
                jump = intrin.break_loop if isinstance(node, ast.Break) else intrin.continue_loop
                self.evaluate(jump(), node)
            case ast.Assert(test=test, msg=msg):
                self.check(node, test, msg)
            case ast.Pass() | ast.Nonlocal():  # names of enclosing functions are visible anyway
                return
            case _:
                raise refusal(self.program, node, "a kernel")

    def assign(self, node: ast.Assign) -> None:
        """Read `target = value`."""
        if len(node.targets) > 1:
            raise self.error(node.targets[1], "bind one target in a statement")
        [target] = node.targets
        value = self.values.value(node.value)
        if isinstance(target, ast.Subscript):
            buffer = self.buffer_at(target)
            self.store_at(buffer, self.values.value(target.slice), target, value, node)
        else:
            self.bind_target(target, value, node.value)

    def bind_target(self, target: ast.expr, value: object, at: ast.expr) -> None:
        """Bind the names of `target`."""
        if isinstance(target, ast.Name):
            self.call_at(at, self.bind, target.id, value, target, at)
            return
        if isinstance(target, ast.Subscript):
            raise self.error(target, "each element is assigned in a separate statement")
        if not isinstance(target, (ast.Tuple, ast.List)):
            raise self.error(target, "only names and elements of buffers can be assigned to")
        names = [name.id for name in target.elts if isinstance(name, ast.Name)]
        if len(set(names)) != len(names):
            raise self.error(target, "a name is bound twice in one statement")
        members: Sequence[object]
        if isinstance(value, records.RemapForm):
            members = self.expand_remap(value, at)
        elif isinstance(value, records.MetaVar):
            members = list(map(records.MetaVar, self.values.iterable(value.value, at)))
        else:
            members = list(self.values.iterable(value, at))
        for inner, member in displays.paired(self.values, target, list(members)):
            self.bind_target(inner, member, at)

    def bind(self, name: str, value: object, target: ast.expr, at: ast.expr) -> None:
        """Bind `name` to `value`; a scalar becomes a variable with a LetStmt.

        Errors:
            ParseError: the name is already bound to something else in this scope.
        """
        present = self.scope.frames[-1].get(name, MISSING)
        if present is not MISSING and present is not POISON and not is_same(present, value):
            raise self.error(
                target,
                f"{name!r} is already defined in this scope",
                hint="kernels bind a name once; use another name, or a buffer for what changes",
            )
        outer = self.scope.find(name)
        self.scope.set(name, self.bound_value(name, value, at))
        names = (child.id for child in ast.walk(at) if isinstance(child, ast.Name))
        if isinstance(outer, Var) and isinstance(value, PrimExpr) and name in names:
            message = f"{name!r} is another variable here; outside it keeps its value"
            hint = "what changes in a loop is an element of a buffer, as of T.alloc_buffer((1,))"
            warn(Diagnostic(message, None, self.program.span(target), hint))

    def bound_value(self, name: str, value: object, at: ast.expr) -> object:
        """The value of a name after `name = value`."""
        match value:
            case records.MetaVar(value=inner):
                return inner
            case records.Form():
                return self.define(name, value, at)
            case displays.Lambda():
                raise displays.lambda_named(self.program, at)
            case TypeVar():
                return self.shape_var(name)
            case Var() | Buffer() if not value.name and self.is_created_here(value):
                set_name(value, name)
                return value
            case Var() if not value.name:
                fresh = value.renamed(name)
                self.named.add(fresh)
                return fresh
            case Var() if value not in self.named:
                return value
            case IterVar():
                return value.var
            case PrimExpr() | bool() | int() | float():
                return self.let(name, ops.convert(value), at)
            case list() | tuple() | dict():
                return self.define_members(name, value, at)
            case _:
                return value

    def define_members(self, name: str, value: Any, at: ast.expr) -> Any:
        """Apply the directives in `value`; their results are called `name_0` and so on.

        Members that read memory become variables, since later stores must not change them.
        """
        if isinstance(value, (*kernel_builder.NAMED, *kernel_builder.SCOPED)):
            return self.define(name, value, at)
        if isinstance(value, records.MetaVar):
            return value.value
        if isinstance(value, PrimExpr):
            return self.let(name, value, at) if may_read(value) and value.dtype else value
        if type(value) not in (list, tuple, dict):
            return value
        members = list(value.values() if isinstance(value, dict) else value)
        results = [self.define_members(f"{name}_{k}", m, at) for k, m in enumerate(members)]
        if all(old is new for old, new in zip(members, results, strict=True)):
            return value
        if isinstance(value, dict):
            return dict(zip(value, results, strict=True))
        return tuple(results) if isinstance(value, tuple) else results

    def is_created_here(self, value: Var | Buffer) -> bool:
        """True if a function of the user has created `value` without a name."""
        return value in self.named if isinstance(value, Var) else value.data in self.owners

    def let(self, name: str, value: PrimExpr, at: Positioned, var: Var | None = None) -> Var:
        """Create a variable for `value` in the statements that follow."""
        if not value.dtype.lanes:
            raise self.error(at, f"`{value}` has no value to name")
        bound = var if var is not None else self.new_var(name, value.dtype)
        span = self.program.span(at)
        self.add(lambda body: stmt.LetStmt(bound, value, body, span))
        if not may_read(value):
            self.blocks[-1].lets[bound] = value
        return bound

    @override
    def alloc_buffer(self, name: str, spec: records.BufferSpec, at: Any) -> Buffer:
        # A block allocates before its statements, so values stand for the variables of its lets.
        lets = self.blocks[-1].lets
        shape = tuple(self.without_names(ops.convert(size), lets) for size in spec.shape)
        return kernel_builder.KernelBuilder.alloc_buffer(self, name, replace(spec, shape=shape), at)

    @staticmethod
    def without_names(size: PrimExpr, lets: dict[Var, PrimExpr]) -> PrimExpr:
        """`size` with named sizes replaced by their values; unchanged if it mentions none."""
        found = size
        for var in reversed(lets):
            if mentions(found, {var}):
                found = substitute(found, {var: lets[var]})
        return size if found is size else simplify(found)

    def annotated(self, node: ast.AnnAssign) -> None:
        """Read `name: T.int32 = value`."""
        if not isinstance(node.target, ast.Name):
            raise self.error(node.target, "an annotation belongs to a name")
        if node.value is None:
            raise self.error(node, "a name is bound with a value, as in x: T.int32 = 0")
        var = kernel_builder.typed_var(node.target.id, self.values.value(node.annotation))
        if var is None:
            raise self.error(node.annotation, "a variable in a kernel is a scalar or a handle")
        value = self.typed(self.values.value(node.value), var.dtype, node.target.id, node.value)
        if self.scope.frames[-1].get(node.target.id, MISSING) is not MISSING:
            raise self.error(node.target, f"{node.target.id!r} is already defined in this scope")
        self.named.add(var)
        self.scope.set(node.target.id, self.let(node.target.id, value, node, var))

    def typed(self, value: object, dtype: DataType, name: str, at: ast.expr) -> PrimExpr:
        """Convert `value` to the `dtype` that the program declares for `name`."""
        result: PrimExpr = self.call_at(at, kernel_builder.scalar, value, dtype)
        inexact = dtype.is_int and isinstance(value, (float, np.floating)) and value != int(value)
        if inexact or result.dtype != dtype:
            actual = value if inexact else result.dtype or "void"
            raise self.error(at, f"{name} is {dtype}, the value is {actual}")
        return result

    def store_at(
        self,
        buffer: Buffer,
        index: object,
        target: ast.Subscript,
        value: object,
        node: ast.Assign | ast.AugAssign,
    ) -> None:
        """Store `value` to the element of `buffer` at `index`, which `target` names."""
        form = records.StoreForm(buffer, value, self.indices(buffer, index, target))
        self.store(form, node, target=target, source=node.value)

    def buffer_at(self, target: ast.Subscript) -> Buffer:
        """The buffer of which `target` is an element."""
        buffer = self.values.value(target.value)
        if not isinstance(buffer, Buffer):
            raise self.error(
                target.value,
                f"only elements of buffers can be assigned to, found {describe(buffer)}",
            )
        return buffer

    def indices(self, buffer: Buffer, index: object, target: ast.Subscript) -> tuple[PrimExpr, ...]:
        """The indices of a store; a slice becomes a vector of indices."""
        indices = index if isinstance(index, tuple) else (index,)
        nodes = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        if len(indices) != buffer.ndim:
            raise self.error(target.slice, index_count(buffer, indices))
        if len(nodes) != len(indices):
            nodes = [target.slice] * len(indices)
        return tuple(
            self.call_at(at, vector_index, index, dim)
            if isinstance(index, slice)
            else self.call_at(at, ops.convert, index)
            for at, index, dim in zip(nodes, indices, buffer.shape, strict=True)
        )

    def change(self, node: ast.AugAssign) -> None:
        """Read `buffer[index] += value`."""
        target = node.target
        if not isinstance(target, ast.Subscript):
            raise self.error(
                node,
                "names in a kernel are bound once",
                hint="keep what changes in a buffer, as in A[i] += 1",
            )
        buffer = self.buffer_at(target)
        index = self.values.value(target.slice)
        old = self.call_at(target, lambda: buffer[index])
        value = self.values.value(node.value)
        changed = ast.copy_location(ast.BinOp(target, node.op, node.value), node)
        self.store_at(buffer, index, target, self.values.binary(node.op, old, value, changed), node)

    def for_loop(self, node: ast.For) -> None:
        """Read `for targets in form:`."""
        if node.orelse:
            raise self.error(node.orelse[0], "a loop in a kernel has no else")
        form = self.values.loop_form(node.iter)
        order = list(range(len(form.bounds)))
        targets: list[tuple[ast.expr, Any]] = [(node.target, order if len(order) != 1 else 0)]
        if isinstance(node.target, (ast.Tuple, ast.List)):
            single = [e for e in node.target.elts if not isinstance(e, ast.Starred)]
            if len(order) == 1 < len(single):
                raise self.error(
                    node.target,
                    f"this is one loop, found {len(single)} variables",
                    hint="several loops are T.grid(extent, extent)",
                )
            targets = list(displays.paired(self.values, node.target, order))
        positions: dict[str, int | list[int]] = {}  # of the loops whose variables a name binds
        hints = [""] * len(order)
        for target, loops in targets:
            if not isinstance(target, ast.Name):
                raise self.error(target, "a loop variable is a name")
            if target.id in positions:
                raise self.error(target, f"{target.id!r} is bound twice in one loop")
            positions[target.id] = loops
            if isinstance(loops, int):
                hints[loops] = target.id
                continue
            for k, loop in enumerate(loops):
                hints[loop] = f"{target.id}_{k}"
        with self.loop(form, hints, node.iter) as variables:
            names: dict[str, object] = {
                name: variables[k] if isinstance(k, int) else tuple(variables[n] for n in k)
                for name, k in positions.items()
            }
            self.read_inside(node.body, names)

    def python_while(self, node: ast.While) -> None:
        """Read `while condition:`."""
        if node.orelse:
            raise self.error(node.orelse[0], "a loop in a kernel has no else")
        condition = self.call_at(node.test, ops.truth, self.values.value(node.test))
        with self.while_loop(condition, node.test):
            self.read_inside(node.body)

    def python_if(self, node: ast.If) -> None:
        """Read `if condition:`; a condition that is known at parse time selects one branch."""
        condition = self.values.value(node.test)
        if not isinstance(condition, PrimExpr):
            taken = node.body if self.values.truth(condition, node.test) else node.orelse
            self.read_inside(taken)
            self.scope.hide(bound_names(node))  # those of the other branch
            return
        test = self.call_at(node.test, ops.truth, condition)
        then_case = self.inner(node.body)
        else_case = self.inner(node.orelse) if node.orelse else None
        self.add(stmt.IfThenElse(test, then_case, else_case, self.program.span(node.test)))

    def with_items(self, items: Sequence[ast.withitem], body: list[ast.stmt]) -> None:
        """Read `with a, b as c:`."""
        first, rest = items[0], items[1:]
        at = first.context_expr
        form = self.values.value(at)
        name = first.optional_vars
        if isinstance(form, records.LoopForm):
            hint = f"write for {'i' if name is None else ast.unparse(name)} in {shown(at)}:"
            raise self.error(at, "a loop is a for statement", hint=hint)
        if not isinstance(form, kernel_builder.FRAMES):
            raise self.error(at, f"with takes T.block and the like, found {describe(form)}")
        if isinstance(form, _VALUELESS) and name is not None:
            raise self.error(name, f"{form.display_name} has no value: leave out `as`")
        if name is not None and not isinstance(name, ast.Name):
            raise self.error(name, "a context is bound to one name")
        names = [] if name is None else [name.id]
        with self.frame(form, names, at) as value, self.scope.block(dict.fromkeys(names, value)):
            if rest:
                self.with_items(rest, body)
            else:
                self.read(body)

    def returned(self, node: ast.Return) -> None:
        """Read `return value`."""
        if node.value is None:
            raise self.error(node, "return in a kernel has a value", hint="leave it out otherwise")
        value = self.values.value(node.value)
        scalars = (PrimExpr, bool, int, float, np.generic)
        if not isinstance(value, scalars) or isinstance(value, StringImm):
            raise self.error(
                node.value,
                f"a kernel returns a scalar, found {describe(value)}",
                hint="buffers are parameters, which a kernel writes to: leave the return out"
                if isinstance(value, Buffer)
                else None,
            )
        if self.ret_type:
            result = self.typed(value, self.ret_type, "the result", node.value)
        else:
            result = self.call_at(node.value, kernel_builder.scalar, value, None)
        self.add(stmt.Evaluate(intrin.ret(result), self.program.span(node)))

    def check(self, node: ast.Assert, test: ast.expr, message: ast.expr | None) -> None:
        """Read `assert condition, message`."""
        condition = self.call_at(test, ops.truth, self.values.value(test))
        text = "assertion failed" if message is None else self.values.value(message)
        form = self.call_at(message or node, tir_directives.assert_, condition, text)
        self.effect(form, node)

    def expression(self, node: ast.expr) -> None:
        """Read an expression statement."""
        if isinstance(node, ast.Constant) and (isinstance(node.value, str) or node.value is ...):
            return
        value = self.values.value(node)
        match value:
            case None:
                return
            case records.Form():
                self.effect(value, node)
            case tir.Call():
                self.evaluate(value, node)
            case PrimExpr() if any(map(_calls_kernel, walk(value))):
                self.evaluate(value, node)
            case stmt.BufferStore():
                self.add(replace(value, span=self.program.span(node)))
            case tuple() | list() if all(v is None for v in value):
                return
            case PrimExpr():
                raise self.error(
                    node, f"the value of `{value}` is not used", hint="T.evaluate(...) evaluates it"
                )
            case _:
                raise self.error(node, f"{describe(value)} does nothing here")


def _calls_kernel(node: Node) -> bool:
    """True if this is a call of a function of the module, which may have effects."""
    return isinstance(node, tir.Call) and isinstance(node.op, GlobalVar)
