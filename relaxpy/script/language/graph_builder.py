"""Builds modules and graph functions, binding by binding, for the parser and for IRBuilder."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any

from relaxpy.errors import BuilderStateError, RelaxpyError, Span, WellFormedError
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.relations import is_base_of, struct_info_lca
from relaxpy.script.language import records
from relaxpy.script.language.annotations import Devices, resolve
from relaxpy.script.language.relax_directives import kernel_call
from relaxpy.script.language.wording import describe
from relaxpy.support.dataclass import dataclass


class DefinitionBuilder:
    """Base of the builders of modules, graph functions and kernels.

    `at` is the location of a statement. Only the subclasses that read a text use it.
    """

    def error(
        self, at: Any, message: str, kind: type[RelaxpyError] | None = None, **details: Any
    ) -> RelaxpyError:
        """Create the error `message` at location `at`, of this kind if it is in a text."""
        return BuilderStateError(message, **details)

    def span(self, at: Any) -> Span | None:
        """The span of location `at`."""
        return None

    def set_symbol(
        self, attrs: dict[str, object], kind: str, name: str | None, *, private: bool, at: Any
    ) -> None:
        """Set the global symbol of a function to its name, unless it has one.

        Errors:
            BuilderStateError, ParseError: a private function has one.
        """
        if private and "global_symbol" in attrs:
            called = kind if name is None else f"{kind} {name!r}"
            raise self.error(at, f"private {called} has a global_symbol")
        if not private and name is not None:
            attrs.setdefault("global_symbol", name)


class ModuleBuilder(DefinitionBuilder):
    """Builds the attributes and the global infos of a module."""

    def __init__(self) -> None:
        self.attrs: dict[str, object] = {}
        self.devices = Devices()

    def apply(self, form: object, at: Any) -> None:
        """Apply a directive of the module."""
        match form:
            case records.AttrsForm(owner="module", attrs=attrs):
                if self.attrs and not form.overwrite:
                    raise self.error(
                        at,
                        "I.module_attrs occurs twice",
                        hint="with allow_overwrite=True these replace the others",
                    )
                self.attrs = dict(attrs)
            case records.GlobalInfosForm(infos=infos):
                if self.devices.global_infos:
                    raise self.error(at, "I.module_global_infos occurs twice")
                self.devices.global_infos = infos
            case _:
                raise self.error(at, "this does nothing in a module")


@dataclass(slots=True)
class Branch:
    """A branch of an if; the `annotation` of a value that is a leaf applies to the result."""

    value: rx.SeqExpr
    annotation: rx.StructInfo | None


class GraphBuilder(DefinitionBuilder):
    """Builds a graph function from values, the records of `R`, blocks and branches.

    `module_names` are the names of the module to which kernels are added, None outside of one.
    """

    #: What to write instead of a kernel outside of a module.
    module_hint = "build the function in with I.ir_module():"

    def __init__(self, builder: BlockBuilder, module_names: Container[str] | None = None) -> None:
        self.builder = builder
        self.module_names = module_names
        self.params: list[rx.Var] = []
        #: The declared struct infos of variables.
        self.annotations: dict[rx.Expr, rx.StructInfo] = {}

    def at(self, at: Any) -> AbstractContextManager[None]:
        """Locate the errors of the builder at `at`, until the context ends."""
        return nullcontext()

    # --- bindings

    def expression(self, value: object, at: Any) -> rx.Expr:
        """Convert `value` to an expression."""
        return rx.convert_to_expr(value)

    def bindable(self, value: object, at: Any) -> rx.Expr:
        """Convert `value` to the right side of a binding; Python numbers become tensor literals."""
        number = isinstance(value, (bool, int, float))
        return rx.const(value) if number else self.expression(value, at)

    def cast_operands(
        self, form: records.MatchCastForm | records.MatchShapeForm, at: Any
    ) -> tuple[rx.Expr, rx.StructInfo, Span | None]:
        """The value and the struct info of a cast, and the location of the value."""
        if isinstance(form, records.MatchShapeForm):
            raise self.error(at, f"{describe(form)} is for parsed programs only")
        return self.expression(form.value, at), resolve(form.annotation), self.span(at)

    def emit(self, value: rx.Expr, at: Any, *args: Any, **options: Any) -> rx.Var:
        """Bind `value` by `BlockBuilder.emit`, and return the variable."""
        if "span" not in options:
            options["span"] = self.span(at)
        with self.at(at):
            var = self.builder.emit(value, *args, **options)
        if options.get("annotation") is not None:
            self.annotations[var] = options["annotation"]
        return var

    def cast(
        self, form: records.MatchCastForm | records.MatchShapeForm, at: Any, **options: Any
    ) -> rx.Var | None:
        """Bind the value of a cast by `BlockBuilder.match_cast`, and return the variable."""
        value, sinfo, span = self.cast_operands(form, at)
        with self.at(at):
            return self.builder.match_cast(value, sinfo, span=span, **options)

    def kernel_call(self, form: records.TeForm, at: Any) -> rx.Call:
        """Add the kernel of tensor expressions to the module, and return the call of it.

        Errors:
            BuilderStateError, ParseError: there is no module.
        """
        with self.at(at):
            if self.module_names is None:
                raise self.error(
                    at,
                    "R.emit_te adds a kernel to the enclosing module, and there is none",
                    hint=self.module_hint,
                )
            return kernel_call(form, self.builder, self.module_names)

    def apply(self, form: records.Form, at: Any) -> Any:
        """Apply a record of `R` at once: the variable that it binds, or the call of a kernel."""
        match form:
            case records.EmitForm(value=value, annotation=annotation):
                return self.emit(self.bindable(value, at), at, annotation=annotation)
            case records.MatchCastForm() | records.MatchShapeForm():
                return self.cast(form, at)
            case records.TeForm():
                return self.kernel_call(form, at)
            case _:
                raise self.error(at, f"{describe(form)} belongs in the program itself")

    # --- blocks and branches

    def check_block(self, at: Any) -> None:
        """Check that a dataflow block can begin here."""
        if self.builder.current_block_is_dataflow():
            raise self.error(at, "a dataflow block cannot be inside another one")

    def check_if(self, at: Any) -> None:
        """Check that an if can be here (WF-7c)."""
        if self.builder.current_block_is_dataflow():
            raise self.error(
                at,
                "an if cannot be inside a dataflow block",
                WellFormedError,
                rule="WF-7c",
                hint="end the block before it and begin another one after it",
            )

    def common_name(self, names: Sequence[str], at: Any) -> str:
        """The name that the branches bind last; if there is none, the builder chooses one."""
        if len(set(names)) > 1:
            raise self.error(
                at,
                f"the branches bind {names[0]!r} and {names[1]!r} last, they must agree",
                rule="AST-13",
                hint="bind the same name last in both branches",
            )
        return names[0] if names else ""

    def end_branch(self, result: rx.Expr, at: Any) -> Branch:
        """End the scope of a branch, whose value is `result`.

        If that is a variable that was bound last, to a leaf, the leaf is the value itself.
        """
        last, annotation = self.builder.last_binding(), self.annotations.get(result)
        with self.at(at):
            if isinstance(last, rx.VarBinding) and last.var is result and is_leaf(last.value):
                known = self.builder.struct_info_of(last.value)
                if annotation is None or is_base_of(annotation, known):
                    self.builder.unbind_last()
                    return Branch(self.builder.end_scope(last.value), annotation)
            return Branch(self.builder.end_scope(result), None)

    @staticmethod
    def annotation_of(branches: Sequence[Branch]) -> rx.StructInfo | None:
        """The annotation of the result of an if."""
        annotations = [b.annotation for b in branches if b.annotation is not None]
        return reduce(struct_info_lca, annotations) if annotations else None

    # --- the function as a whole

    def parameter(self, param: rx.Var) -> None:
        """Append a parameter."""
        self.builder.add_params(param)
        self.params.append(param)

    def finish(
        self,
        params: Sequence[rx.Var],
        body: rx.SeqExpr,
        ret: rx.StructInfo | None,
        *,
        pure: bool,
        attrs: dict[str, object],
        name: str | None,
        private: bool,
        at: Any,
    ) -> rx.Function:
        """Create the function with this body, in normal form."""
        self.set_symbol(attrs, "function", name, private=private, at=at)
        func = rx.Function(tuple(params), body, ret, pure, Attrs(attrs), span=self.span(at))
        return self.builder.normalize_function(func)
