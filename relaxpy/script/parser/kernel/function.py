"""Reads one `@T.prim_func`: its signature and its statements."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from relaxpy.errors import Diagnostic, RelaxpyError, warn
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes.naming import set_name
from relaxpy.ir.tir import expr as tir, intrin, ops, stmt
from relaxpy.ir.tir.buffer import Buffer, IterVar, check_access, index_count, vector_index
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script.language import records, tir_directives
from relaxpy.script.language.annotations import is_annotation
from relaxpy.script.language.kernel_frames import (
    FRAMES,
    NAMED,
    SCOPED,
    result_type,
    scalar,
    typed_var,
)
from relaxpy.script.language.wording import as_parse_error, describe, shown
from relaxpy.script.parser.evaluate import displays
from relaxpy.script.parser.evaluate.call_faults import argument_node
from relaxpy.script.parser.evaluate.displays import Lambda, lambda_named
from relaxpy.script.parser.kernel.state import KernelState
from relaxpy.script.parser.source.report import docstring_removed, header, refusal
from relaxpy.script.parser.source.scope import POISON, Poisoned
from relaxpy.script.parser.source.text import Positioned
from relaxpy.script.parser.source.type_params import type_parameters

#: The frames without a value that `as` could name.
_VALUELESS = (
    *(records.BlockForm, records.InitForm, records.WhileForm, records.IfForm, records.BranchForm),
    *(records.AttrForm, records.RealizeForm, records.AssertForm),
)


class KernelReader(KernelState):
    """Reads the definition of one kernel."""

    def function(self, node: ast.FunctionDef, *, symbol: str | None = None) -> PrimFunc | None:
        """The kernel defined at `node`, or None where something in it is wrong and reported."""
        before = len(self.report.errors)
        with self.scope.inner():
            self.read_signature(node)
            with self.body("function") as body:
                self.statements.read(docstring_removed(node.body), self.statement)
            if len(self.report.errors) > before:
                return None
            try:
                return self.finish(
                    body, symbol, private_as=node.name if symbol is None else None, at=node
                )
            except RelaxpyError as error:
                self.report.add(as_parse_error(error, self.program.span(node)))
                return None

    def read_signature(self, node: ast.FunctionDef) -> None:
        """Bind the parameters."""
        spec = node.args
        for name in type_parameters(node, self.error, self.report):
            self.scope.set(name, self.size(name))
        for error in self.program.repeated(spec):
            self.report.add(error)
        for extra in (spec.vararg, spec.kwarg, *spec.kwonlyargs):
            if extra is not None:
                self.report.add(self.error(extra, "a kernel has plain positional parameters only"))
        for default in (*spec.defaults, *filter(None, spec.kw_defaults)):
            self.report.add(self.error(default, "parameters of a kernel have no defaults"))
        for arg in (*spec.posonlyargs, *spec.args):
            try:
                found: object = self.declared_parameter(arg)
            except Poisoned:
                found = POISON
            except RelaxpyError as error:
                found = POISON
                self.report.add(as_parse_error(error, self.program.span(arg)))
            self.scope.set(arg.arg, found)
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
            raise self.error(
                arg,
                f"parameter {arg.arg!r} has no annotation",
                hint='annotate it, as in A: T.Buffer((4, 4), "float32"), a: T.handle or n: T.int32',
            )
        given = self.values.value(arg.annotation)
        if isinstance(given, records.BufferSpec):
            buffer: Buffer = self.call_at(
                arg.annotation, given.make, arg.arg, self.program.span(arg)
            )
            self.parameter(arg.arg, buffer)
            return buffer
        var = typed_var(arg.arg, given)
        if var is None:
            raise self.error(
                arg.annotation,
                f"a parameter is a buffer, a handle or a scalar, found {describe(given)}",
                hint=_parameter_hint(given),
            )
        self.parameter(arg.arg, var)
        return var

    def return_type(self, node: ast.expr) -> DataType | None:
        """The datatype that a return annotation names."""
        found: DataType | None = self.call_at(node, result_type, self.values.value(node))
        return found

    # --- statements

    @override
    def statement(self, node: ast.stmt) -> None:
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
            case ast.Pass() | ast.Nonlocal():  # whose names are looked up outside anyway
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
            self.store(target, value, node)
        else:
            self.bind_target(target, value, node.value)

    def bind_target(self, target: ast.expr, value: object, at: ast.expr) -> None:
        """Bind the names of `target`."""
        if isinstance(target, ast.Name):
            self.call_at(at, self.bind, target.id, value, target, at)
            return
        if isinstance(target, ast.Subscript):
            raise self.error(target, "an element is assigned to in a statement of its own")
        if not isinstance(target, (ast.Tuple, ast.List)):
            raise self.error(target, "only names and elements of buffers can be assigned to")
        names = [part.id for part in target.elts if isinstance(part, ast.Name)]
        if len(set(names)) != len(names):
            raise self.error(target, "a name is bound twice in one statement")
        members: Sequence[object]
        if isinstance(value, records.RemapForm):
            members = self.expand_remap(value, at)
        elif isinstance(value, records.MetaVar):
            members = [records.MetaVar(part) for part in self.values.iterable(value.value, at)]
        else:
            members = list(self.values.iterable(value, at))
        for part, member in displays.paired(self.values, target, list(members)):
            self.bind_target(part, member, at)

    def bind(self, name: str, value: object, target: ast.expr, at: ast.expr) -> None:
        """Give `name` the meaning of `value`; a scalar becomes a variable with a LetStmt.

        Errors:
            ParseError: the name already means something else in this scope.
        """
        present = self.scope.frames[-1].get(name, POISON)
        if present is not POISON and not _same(present, value):
            raise self.error(
                target,
                f"{name!r} is already defined in this scope",
                hint="kernels bind a name once; use another name, or a buffer for what changes",
            )
        outer = self.scope.find(name)
        self.scope.set(name, self.meaning(name, value, at))
        names = (part.id for part in ast.walk(at) if isinstance(part, ast.Name))
        if isinstance(outer, Var) and isinstance(value, PrimExpr) and name in names:
            message = f"{name!r} is another variable here; outside it keeps its value"
            hint = "what changes in a loop is an element of a buffer, as of T.alloc_buffer((1,))"
            warn(Diagnostic(message, None, self.program.span(target), hint))

    def meaning(self, name: str, value: object, at: ast.expr) -> object:
        """What a name stands for after `name = value`."""
        match value:
            case records.MetaVar(value=inner):
                return inner
            case records.Form():
                return self.define(name, value, at)
            case Lambda():
                raise lambda_named(self.program, at)
            case TypeVar():
                return self.size(name)
            case Var() | Buffer() if not value.name and self.is_made(value):
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
                return self.members_defined(name, value, at)
            case _:
                return value

    def members_defined(self, name: str, value: Any, at: ast.expr) -> Any:
        """`value` with the directives in it applied, their results called `name_0` and so on."""
        if isinstance(value, (*NAMED, *SCOPED)):
            return self.define(name, value, at)
        if type(value) not in (list, tuple, dict):
            return value
        members = list(value.values() if isinstance(value, dict) else value)
        results = [self.members_defined(f"{name}_{k}", m, at) for k, m in enumerate(members)]
        if all(old is new for old, new in zip(members, results, strict=True)):
            return value
        if isinstance(value, dict):
            return dict(zip(value, results, strict=True))
        return tuple(results) if isinstance(value, tuple) else results

    def is_made(self, value: Var | Buffer) -> bool:
        """Whether a function of the user's made this for the kernel, without a name."""
        return value in self.named if isinstance(value, Var) else value.data in self.pointers

    def let(self, name: str, value: PrimExpr, at: Positioned, var: Var | None = None) -> Var:
        """A variable for `value` in what follows."""
        if not value.dtype.lanes:
            raise self.error(at, f"`{value}` has no value to name")
        bound = var if var is not None else self.new_var(name, value.dtype)
        span = self.program.span(at)
        self.add(lambda body: stmt.LetStmt(bound, value, body, span))
        return bound

    def annotated(self, node: ast.AnnAssign) -> None:
        """Read `name: T.int32 = value`."""
        if not isinstance(node.target, ast.Name):
            raise self.error(node.target, "an annotation belongs to a name")
        if node.value is None:
            raise self.error(node, "a name is bound with a value, as in x: T.int32 = 0")
        var = typed_var(node.target.id, self.values.value(node.annotation))
        if var is None:
            raise self.error(node.annotation, "a variable in a kernel is a scalar or a handle")
        value = self.typed(self.values.value(node.value), var.dtype, node.target.id, node.value)
        if node.target.id in self.scope.frames[-1]:
            raise self.error(node.target, f"{node.target.id!r} is already defined in this scope")
        self.named.add(var)
        self.scope.set(node.target.id, self.let(node.target.id, value, node, var))

    def typed(self, value: object, dtype: DataType, name: str, at: ast.expr) -> PrimExpr:
        """`value`, which a program declares to be of `dtype` where it is called `name`."""
        result: PrimExpr = self.call_at(at, scalar, value, dtype)
        inexact = dtype.is_int and isinstance(value, (float, np.floating)) and value != int(value)
        if inexact or result.dtype != dtype:
            actual = value if inexact else result.dtype or "void"
            raise self.error(at, f"{name} is {dtype}, the value is {actual}")
        return result

    def store(self, target: ast.Subscript, value: object, node: ast.Assign) -> None:
        """Read `buffer[index] = value`."""
        buffer = self.buffer_at(target)
        self.store_at(buffer, self.values.value(target.slice), target, value, node)

    def store_at(
        self,
        buffer: Buffer,
        index: object,
        target: ast.Subscript,
        value: object,
        node: ast.Assign | ast.AugAssign,
    ) -> None:
        """Store `value` to the element of `buffer` at `index`, which `target` names."""
        indices = self.indices(buffer, index, target)
        dtype, _, _ = self.call_at(target, check_access, buffer, indices)
        at = node.value
        converted: PrimExpr = self.call_at(at, scalar, value, dtype)
        stored = self.call_at(at, ops.cast_to, converted, dtype)
        self.add(stmt.BufferStore(buffer, stored, indices, span=self.program.span(node)))

    def buffer_at(self, target: ast.Subscript) -> Buffer:
        """The buffer that `target` is an element of."""
        buffer = self.values.value(target.value)
        if not isinstance(buffer, Buffer):
            raise self.error(
                target.value,
                f"only elements of buffers can be assigned to, found {describe(buffer)}",
            )
        return buffer

    def indices(self, buffer: Buffer, index: object, target: ast.Subscript) -> tuple[PrimExpr, ...]:
        """The indices of a store; a slice stands for a vector of them."""
        indices = index if isinstance(index, tuple) else (index,)
        nodes = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        if len(indices) != buffer.ndim:
            raise self.error(target.slice, index_count(buffer, indices))
        if len(nodes) != len(indices):
            nodes = [target.slice] * len(indices)
        return tuple(
            self.call_at(at, vector_index, index, size)
            if isinstance(index, slice)
            else self.call_at(at, ops.convert, index)
            for at, index, size in zip(nodes, indices, buffer.shape, strict=True)
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
        form = self.loop_form(node.iter)
        order = list(range(len(form.bounds)))
        names: dict[str, int | list[int]] = {}
        called = [""] * len(order)

        def name_them(target: ast.expr, which: Any) -> None:
            if not isinstance(target, ast.Name):
                raise self.error(target, "a loop variable is a name")
            if target.id in names:
                raise self.error(target, f"{target.id!r} is bound twice in one loop")
            names[target.id] = which
            if isinstance(which, int):
                called[which] = target.id
                return
            for place, k in enumerate(which):
                called[k] = f"{target.id}_{place}"

        if isinstance(node.target, (ast.Tuple, ast.List)):
            for part, which in displays.paired(self.values, node.target, order):
                name_them(part, which)
        else:
            name_them(node.target, order if len(order) != 1 else 0)
        with self.loop(form, called, node.iter) as made:
            bound: dict[str, object] = {
                name: made[k] if isinstance(k, int) else tuple(made[n] for n in k)
                for name, k in names.items()
            }
            self.read_inside(node.body, bound)

    def loop_form(self, node: ast.expr) -> records.LoopForm:
        """What a loop runs over."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = self.values.value(node.func)
            if function is builtins.range:
                args, kwargs = self.values.arguments(node)
                if kwargs or len(args) not in (1, 2):
                    raise self.error(
                        node,
                        "range in a kernel takes an end, or a start and an end",
                        hint="for steps, run over their number and multiply the loop variable",
                    )
                try:
                    return tir_directives.serial(*args)
                except RelaxpyError as error:
                    at = argument_node(node, args, kwargs, error.about) or node
                    raise as_parse_error(error, self.program.span(at)) from None
        value = self.values.value(node)
        if isinstance(value, records.LoopForm):
            return value
        if isinstance(value, range) and value.step == 1:
            return tir_directives.serial(value.start, value.stop)
        raise self.error(
            node,
            f"a loop in a kernel runs over range, T.grid or the like, found {describe(value)}",
            hint=f"write range({shown(node)})" if isinstance(value, (int, PrimExpr)) else None,
        )

    def python_while(self, node: ast.While) -> None:
        """Read `while condition:`."""
        if node.orelse:
            raise self.error(node.orelse[0], "a loop in a kernel has no else")
        condition = self.call_at(node.test, ops.truth, self.values.value(node.test))
        with self.while_loop(condition, node.test):
            self.read_inside(node.body)

    def python_if(self, node: ast.If) -> None:
        """`if condition:`; a condition known while reading chooses at once."""
        condition = self.values.value(node.test)
        if not isinstance(condition, PrimExpr):
            taken = node.body if self.values.truth(condition, node.test) else node.orelse
            with self.scope.inner():
                self.statements.read(taken, self.statement)
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
        if not isinstance(form, FRAMES):
            raise self.error(at, f"with takes T.block and the like, found {describe(form)}")
        if isinstance(form, _VALUELESS) and name is not None:
            raise self.error(name, f"{form.display_name} has no value: leave out `as`")
        if name is not None and not isinstance(name, ast.Name):
            raise self.error(name, "only a name can stand here")
        names = [] if name is None else [name.id]
        with self.frame(form, names, at) as found:
            if not rest:
                self.read_inside(body, dict.fromkeys(names, found))
                return
            with self.scope.inner(dict.fromkeys(names, found)):
                self.with_items(rest, body)

    def returned(self, node: ast.Return) -> None:
        """Read `return value`."""
        if node.value is None:
            raise self.error(node, "return in a kernel has a value", hint="leave it out otherwise")
        value = self.values.value(node.value)
        if not isinstance(value, (PrimExpr, bool, int, float, np.generic)):
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
            result = self.call_at(node.value, scalar, value, None)
        self.add(stmt.Evaluate(intrin.ret(result), self.program.span(node)))

    def check(self, node: ast.Assert, test: ast.expr, message: ast.expr | None) -> None:
        """Read `assert condition, message`."""
        condition = self.call_at(test, ops.truth, self.values.value(test))
        text = "assertion failed" if message is None else self.values.value(message)
        shown = self.call_at(message or node, ops.convert, text)
        span = self.program.span(node)
        self.add(lambda body: stmt.AssertStmt(condition, shown, body, span))

    def expression(self, node: ast.expr) -> None:
        """An expression on a line of its own."""
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


def _parameter_hint(annotation: object) -> str | None:
    """What to write in place of an annotation that declares no parameter."""
    if annotation is records.BufferSpec:
        return 'a buffer has a shape and a datatype, as in T.Buffer((4, 4), "float32")'
    if is_annotation(annotation):
        return 'tensors of a kernel are buffers, as in T.Buffer((4, 4), "float32")'
    if annotation in (int, float, bool):
        return "scalars are of a datatype, as in n: T.int32"
    if isinstance(annotation, str):
        return "annotations are no strings: write n: T.int32"
    return None


def _same(present: object, value: object) -> bool:
    """Whether a name that stands for `present` may be said again to stand for `value`."""
    if isinstance(value, records.MetaVar):
        value = value.value
        if isinstance(value, (bool, int, float, str)):
            return type(present) is type(value) and present == value
    return present is value
