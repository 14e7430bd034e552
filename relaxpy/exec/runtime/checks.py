"""Run-time checks of values against struct info, by match_cast and by function signatures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import (
    CompileError,
    FunctionSignatureError,
    MatchCastError,
    RuntimeCheckError,
    counted,
)
from relaxpy.exec.runtime.conditions import Component, components
from relaxpy.exec.runtime.values import (
    Category,
    FunctionValue,
    ShapeTuple,
    Value,
    category_of,
    describe,
    prim_dtype,
)
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.tensor import is_torch
from relaxpy.ir.core.traverse import occurrences, rewrite, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import is_of_relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.infer import callee_name
from relaxpy.ir.relax.outputs import OUTPUT_TREE, RETURNS_TREE, STRING_SIZES, in_tree, names_of
from relaxpy.ir.relax.relations import free_shape_vars, is_base_of, substitute_info
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.exec.runtime.scalar import Scalar


@dataclass(slots=True)
class Bindings:
    """The bound shape variables, the origin of each, and the values of Relax variables."""

    sizes: dict[tir.Var, Scalar] = field(default_factory=dict)
    origins: dict[tir.Var, str] = field(default_factory=dict)
    shapes: dict[rx.Var, Value] = field(default_factory=dict)

    def copy(self) -> Bindings:
        """An independent copy."""
        return Bindings(dict(self.sizes), dict(self.origins), dict(self.shapes))

    def adopt(self, other: Bindings) -> None:
        """Add the shape variables of `other`."""
        self.sizes.update(other.sizes)
        self.origins.update(other.origins)

    def evaluate(self, expr: tir.PrimExpr) -> Scalar:
        """The value of `expr` under the bindings (PX-1, PX-2, PX-3, PX-4, PX-5, PX-7, PX-9).

        Errors:
            RuntimeCheckError: a variable is not bound, a division by zero, or an overflow.
        """
        # Native code evaluates sizes itself: its programs start without this.
        from relaxpy.exec.runtime.scalar import ScalarEvaluator, checked

        return ScalarEvaluator(self.sizes, checked).value(expr)


@dataclass(slots=True)
class _Location:
    """A component of the value that messages call `title`, and its position."""

    part: Component
    value: Value
    title: str
    span: Span | None


_OTHER_SIZES = (
    "to call it with other sizes, compile the model with a dynamic one: "
    "relaxpy.compile(model, args=..., dynamic={name: {0: 'n'}}), "
    "torch.export.export(..., dynamic_shapes=...), or from_onnx(..., shape_dict={name: ['n', ...]})"
)
_LONGEST = 400
"""The most characters of struct info in a message: a tuple of parameters can have thousands."""
_COMPARISON_RULES = frozenset(("MC-4", "MC-7", "MC-10", "MC-12", "MC-16", "MC-17"))


class Matcher:
    """Checks values against struct info, from left to right, and binds new shape variables.

    With `defer`, comparisons are made by `finish`, after all variables are bound (FN-5). If `binds`
    is false, no variable is bound (FN-9). Errors cite the two `rules` for a wrong structure and a
    wrong dimension, or else the MC-n rules.
    """

    def __init__(
        self,
        bindings: Bindings,
        error: type[RuntimeCheckError],
        *,
        defer: bool = False,
        binds: bool = True,
        rules: tuple[str, str] | None = None,
    ) -> None:
        self._bindings = bindings
        self._error = error
        self._defer = defer
        self._binds = binds
        self._rules = rules
        self._deferred: list[Callable[[], None]] = []

    def check(
        self, value: Value, sinfo: rx.StructInfo, title: str, span: Span | None = None
    ) -> None:
        """Check `value`, which messages call `title`; raise an `error` if it does not match."""
        for part in components(sinfo):
            self._component(_Location(part, reduce(getitem, part.path, value), title, span))

    def finish(self) -> None:
        """Make the deferred comparisons."""
        for compare in self._deferred:
            compare()

    def _fail(
        self,
        at: _Location,
        problem: str,
        rule: str,
        used: Sequence[tir.Var] = (),
        hint: str | None = None,
    ) -> RuntimeCheckError:
        if self._rules is not None:
            rule = self._rules[1 if rule in _COMPARISON_RULES else 0]
        known = self._bindings
        notes = [
            f"{var.name} = {known.sizes[var]} was bound by {known.origins.get(var, 'the caller')}"
            for var in used
            if var in known.sizes
        ]
        expected = str(at.part.sinfo)
        title = "".join((f"{at.title}: ", *(f"field {n}: " for n in at.part.path)))
        if len(expected) > _LONGEST:
            expected = f"{expected[:_LONGEST]}..."
        return self._error(
            f"{title}expected {expected}, found {describe(at.value)}: {problem}",
            rule=rule,
            span=at.span,
            notes=notes,
            hint=hint or _hint(at.value, at.part.sinfo),
        )

    def _compare(self, compare: Callable[[], None]) -> None:
        if self._defer:
            self._deferred.append(compare)
        else:
            compare()

    def _component(self, at: _Location) -> None:
        """Check everything but the deferred comparisons of dimensions and scalar values.

        Rule:
            Kinds MC-1, MC-2; ranks and datatypes MC-3, MC-9, MC-11; fields MC-13; functions MC-14,
            MC-15, MC-16, MC-17.
        """
        value, part = at.value, at.part
        category = category_of(value)
        if part.categories and category not in part.categories:
            raise self._wrong_category(category, at)
        if part.count >= 0:
            self._count(at, category)
        if not part.dtype.is_void:
            self._dtype(at, category)
        if part.sizes is not None and category is Category.PRIM:
            self._size(value, part.sizes[0], at, "its value", "MC-10")
        elif part.sizes is not None:
            rule = "MC-7" if category is Category.TENSOR else "MC-12"
            actual = value.shape if category is Category.TENSOR else value
            for axis, (size, expr) in enumerate(zip(actual, part.sizes, strict=True)):
                self._size(size, expr, at, f"dimension {axis}", rule)
        if (var := part.shape_var) is not None:
            self._compare(lambda: self._same_shape(value, var, at))
        if (signature := part.signature) is not None:
            self._compare(lambda: self._signature(value, signature, at))

    def _wrong_category(self, category: Category, at: _Location) -> RuntimeCheckError:
        expected = " or ".join(f"a {c.value}" for c in at.part.categories)
        name = f"a {category.value}"
        if category is Category.OBJECT:
            name = describe(at.value) if at.part.path else "it"
        return self._fail(at, f"{name} is not {expected}", "MC-2")

    def _count(self, at: _Location, category: Category) -> None:
        found = at.value.ndim if category is Category.TENSOR else len(at.value)
        if found != at.part.count:
            problem, rule = f"its rank (ndim) is {found}", "MC-3"
            if category is not Category.TENSOR:
                is_tuple = category is Category.TUPLE
                what, rule = ("field", "MC-13") if is_tuple else ("dimension", "MC-11")
                problem = f"it has {counted(found, what)}"
            raise self._fail(at, f"{problem}, not {at.part.count}", rule)

    def _dtype(self, at: _Location, category: Category) -> None:
        value, expected = at.value, at.part.dtype
        if category is Category.PRIM:
            if prim_dtype(value) != expected:
                raise self._fail(at, f"its dtype is {prim_dtype(value)}, not {expected}", "MC-9")
            return
        found = DataType(value.dtype.name)
        # The name uint1 means Bool, but not in ml_dtypes.
        if expected != found or (found.is_bool and value.dtype != np.bool_):
            raise self._fail(at, f"its dtype is {value.dtype.name}, not {expected}", "MC-3")
        if not value.dtype.isnative:
            raise self._fail(at, "the bytes of its elements are swapped", "MC-3")

    def _same_shape(self, value: Value, shape_var: rx.Var, at: _Location) -> None:
        expected = self._bindings.shapes.get(shape_var)
        name = shape_var.name_hint
        if not isinstance(expected, ShapeTuple):
            raise self._fail(at, f"{name} is {describe(expected)}, not a shape", "MC-4")
        if value.shape != tuple(expected):
            raise self._fail(
                at, f"its shape is {value.shape}, but {name} is {tuple(expected)}", "MC-4"
            )

    def _size(
        self, actual: Scalar, expr: tir.PrimExpr, at: _Location, what: str, rule: str
    ) -> None:
        sizes = self._bindings.sizes
        if isinstance(expr, tir.Var) and expr not in sizes and self._binds:
            sizes[expr] = actual
            self._bindings.origins[expr] = f"{what} of {at.title}"
            return
        self._compare(lambda: self._equal(actual, expr, at, what, rule))

    def _equal(
        self, actual: Scalar, expr: tir.PrimExpr, at: _Location, what: str, rule: str
    ) -> None:
        try:
            expected = self._bindings.evaluate(expr)
        except RuntimeCheckError as error:
            error.located(at.span)
            raise
        if actual == expected:
            return
        from relaxpy.ir.short_text.nodes import ShortText  # only for an error

        text = ShortText().prim(expr, INT64)
        how = f"not {expected}" if isinstance(expr, tir.ConstExpr) else f"but {text} = {expected}"
        used, sizes = [v for v in walk(expr) if isinstance(v, tir.Var)], self._bindings.sizes
        # Nodes without a source position are imported: their sizes are those of the import.
        is_imported = self._error is FunctionSignatureError and at.span is None
        is_fixed = isinstance(expr, tir.ConstExpr) and rule == "MC-7" and not sizes
        hint = _OTHER_SIZES if is_imported and is_fixed and self._binds else None
        raise self._fail(at, f"{what} is {actual}, {how}", rule, used, hint)

    def _signature(self, value: FunctionValue, sinfo: rx.FuncStructInfo, at: _Location) -> None:
        known = self._bindings.sizes
        expected = substitute_info(
            sinfo,
            {v: ops.const(known[v], v.dtype) for v in free_shape_vars(sinfo, known) if v in known},
        )
        actual = value.struct_info
        if sinfo.purity and not actual.purity:
            raise self._fail(at, "it is impure", "MC-17")
        if not is_base_of(expected, actual):
            raise self._fail(at, f"{actual} is not a subtype of {expected}", "MC-16")


def _hint(value: Value, sinfo: rx.StructInfo) -> str | None:
    """A hint to pass another object than this common Python one, or None."""
    if isinstance(sinfo, rx.TensorStructInfo) and isinstance(value, Mapping):
        return "pass its values by name: f(**values)"
    if isinstance(sinfo, rx.TensorStructInfo) and isinstance(value, (list, tuple)):
        if any(hasattr(member, "ndim") and member.ndim for member in value):
            return "pass its tensors one by one: f(*values)"
        dtype = "" if sinfo.dtype.is_void else f', "{sinfo.dtype}"'
        return f"convert it to an array: numpy.asarray(...{dtype})"
    if isinstance(value, np.floating) and isinstance(
        sinfo, rx.TensorStructInfo | rx.PrimStructInfo
    ):
        return f'round it with .astype("{sinfo.dtype}")' if sinfo.dtype.is_float else None
    if isinstance(sinfo, rx.TensorStructInfo) and isinstance(value, (int, float)):
        is_scalar = sinfo.ndim == 0 and not sinfo.dtype.is_void
        return f"{sinfo.dtype} does not have this number" if is_scalar else None
    if isinstance(sinfo, rx.ShapeStructInfo) and isinstance(value, (list, tuple)):
        return "convert it to a shape: relaxpy.runtime.ShapeTuple(...)"
    if isinstance(sinfo, rx.FuncStructInfo) and category_of(value) is Category.PACKED_FUNC:
        return "declare the parameter as R.Callable: what a packed function does is not known"
    if isinstance(sinfo, rx.TensorStructInfo) and isinstance(value, np.ndarray):
        found, expected = value.dtype, sinfo.dtype
        if not expected.is_void and (found.name != expected or not found.isnative):
            owner: object = value
            while isinstance(owner, np.ndarray):
                owner = owner.base
            how = f".to(torch.{expected})" if is_torch(owner) else f'.astype("{expected}")'
            return f"convert it with {how}"
    return None


def match_cast(
    value: Value,
    sinfo: rx.StructInfo,
    bindings: Bindings,
    title: str = "match_cast",
    span: Span | None = None,
) -> None:
    """Check `value`, and bind the new variables of `sinfo` if it matches (MC-6, MC-18)."""
    trial = bindings.copy()
    Matcher(trial, MatchCastError).check(value, sinfo, title, span)
    bindings.adopt(trial)


def check_declared_result(
    value: Value, sinfo: rx.StructInfo, bindings: Bindings, title: str, span: Span | None
) -> None:
    """Check the result of an external function against the declaration of its call (DER-29)."""
    rules = ("DER-29", "DER-29")
    matcher = Matcher(bindings, FunctionSignatureError, binds=False, rules=rules)
    matcher.check(value, sinfo, title, span)


def span_of_binding(binding: rx.Binding) -> Span | None:
    """The position of errors in the value of a binding, or in the cast of a match_cast."""
    if isinstance(binding, rx.MatchCast):
        return binding.span or binding.value.span
    return binding.value.span or binding.span


def cast_title(binding: rx.MatchCast, function_name: str) -> str:
    """The description of a match_cast in messages."""
    variable = f" of {binding.var.name_hint}" if binding.var is not None else ""
    return f"match_cast{variable}" + (f" in {function_name}" if function_name else "")


_SHOWN_PARAMS: Final = 8
"""The most parameters that messages show of either end of a signature."""


@dataclass(frozen=True, slots=True, repr=False)
class ValueInfo:
    """The name and the struct info of an input or an output; a name that is not known is empty."""

    name: str
    struct_info: rx.StructInfo | None
    #: The dimensions of a tensor of strings, numbers or names, or None; False for other values.
    strings: Any = False

    @property
    def dtype(self) -> str:
        """The datatype of a tensor or scalar, "strings" of a tensor of these; empty if unknown."""
        if self.strings is not False:
            return "strings"
        dtype = getattr(self.struct_info, "dtype", None)
        return str(dtype) if dtype is not None and not dtype.is_void else ""

    @property
    def shape(self) -> tuple[int | str, ...] | None:
        """The dimensions of a tensor, those that are not fixed as text; None if unknown."""
        if self.strings is not False:
            return None if self.strings is None else tuple(self.strings)
        sinfo = self.struct_info
        sizes = sinfo.get_shape() if isinstance(sinfo, rx.TensorStructInfo) else None
        if sizes is None:
            return None
        return tuple(s.value if isinstance(s, tir.IntImm) else str(s) for s in sizes)

    @override
    def __repr__(self) -> str:
        found: object = self.struct_info
        if self.shape is not None or self.strings is not False:
            found = f"{self.dtype} {'' if self.shape is None else self.shape}".strip()
        return f"{self.name or '_'}: {found}".replace("'", "")


def _described(signature: Signature, param: rx.Var) -> str:
    """The text after the name of a parameter: the values that it takes."""
    strings = signature.string_sizes or {}
    if param.name_hint in strings:
        sizes = strings[param.name_hint]
        return ": strings" + ("" if sizes is None else f" of shape ({', '.join(map(str, sizes))})")
    return f": {param.struct_info}" if param.struct_info is not None else ""


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature to check calls of a Relax function (FN-1, FN-2, FN-8, FN-10, FN-11).

    Messages call the function `name`.
    """

    name: str
    params: tuple[rx.Var, ...]
    ret: rx.StructInfo | None
    span: Span | None = None
    #: The function's attribute about the names of outputs.
    output_tree: object = None
    returns_tree: bool = False
    #: The derived struct info of the result, where none is declared.
    result: rx.StructInfo | None = None
    #: That about the sizes of parameters that have strings.
    string_sizes: Any = None

    @staticmethod
    def of(func: rx.Function, name: str) -> Signature:
        """The signature of `func`."""
        tree, ret = func.attrs.get(OUTPUT_TREE), func.ret_struct_info
        found = getattr(func.struct_info, "ret", None)
        found = found or getattr(func.body.body, "struct_info", None)  # an operator has none
        returns = bool(func.attrs.get(RETURNS_TREE))
        strings = func.attrs.get(STRING_SIZES)
        return Signature(name, func.params, ret, func.span, tree, returns, ret or found, strings)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the values that the function returns, in their order; none if unknown."""
        return names_of(self.output_tree)

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """The parameters."""
        strings = self.string_sizes or {}
        return tuple(
            ValueInfo(param.name_hint, param.struct_info, strings.get(param.name_hint, False))
            for param in self.params
        )

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """The values that the function returns: the fields of a tuple, or a single one."""
        result = self.result
        fields = result.fields if isinstance(result, rx.TupleStructInfo) else (result,)
        names = (*self.output_names, *[""] * len(fields))
        return tuple(map(ValueInfo, names, fields))

    def in_tree(self, result: Value) -> Value:
        """The result of a call as the imported model returns it, if the function does so."""
        if not self.returns_tree:
            return result
        values = result if isinstance(self.result, rx.TupleStructInfo) else (result,)
        found: Value = in_tree(self.output_tree, values)
        return found

    @override
    def __str__(self) -> str:
        params = [f"{param.name_hint}{_described(self, param)}" for param in self.params]
        if len(params) > 2 * _SHOWN_PARAMS:
            hidden = len(params) - 2 * _SHOWN_PARAMS
            params[_SHOWN_PARAMS:-_SHOWN_PARAMS] = [f"... {counted(hidden, 'parameter')} ..."]
        return f"{self.name}({', '.join(params)})" + (
            f" -> {self.result}" if self.result is not None else ""
        )

    def check_count(self, count: int, args: Sequence[object] = ()) -> None:
        """Errors: RuntimeCheckError unless `count`, with `args` among them, fits (FN-11)."""
        if count == len(self.params):
            return
        are_tuples = any(isinstance(p.struct_info, rx.TupleStructInfo) for p in self.params)
        is_nested = any(
            isinstance(arg, (Mapping, list, tuple)) and not isinstance(arg, ShapeTuple)
            for arg in args
        )
        raise RuntimeCheckError(
            f"{self.name} takes {counted(len(self.params), 'argument')}, found {count}",
            rule="FN-11",
            span=self.span,
            hint="pass the tensors of a dictionary or list one by one, in this order"
            if is_nested and not are_tuples
            else None,
            notes=(f"its signature is {self}",),
        )

    def bind(self, args: Sequence[Value], bindings: Bindings) -> None:
        """Check the arguments and add the variables that they bind to `bindings`.

        Rule:
            FN-1, FN-3, FN-4, FN-5, FN-6, FN-7.

        Errors:
            FunctionSignatureError: an argument does not match its parameter.
            RuntimeCheckError: the number of arguments is wrong.
        """
        self.check_count(len(args))
        bindings.shapes.update(zip(self.params, args, strict=True))
        matcher = Matcher(bindings, FunctionSignatureError, defer=True, rules=("FN-1", "FN-5"))
        for param, arg in zip(self.params, args, strict=True):
            if param.struct_info is not None:
                title = f"parameter {param.name_hint} of {self.name}"
                matcher.check(arg, param.struct_info, title, param.span or self.span)
        matcher.finish()

    def check_result(self, result: Value, bindings: Bindings) -> None:
        """Check the result (FN-8, FN-9). Errors: FunctionSignatureError if it does not match."""
        if self.ret is None:
            return
        matcher = Matcher(bindings, FunctionSignatureError, binds=False, rules=("FN-8", "FN-8"))
        matcher.check(result, self.ret, f"the result of {self.name}", self.span)


@dataclass(frozen=True, slots=True)
class CapturedVars:
    """The captured variables whose values generated code passes to a check: sizes, then shapes."""

    size_vars: tuple[tir.Var, ...] = ()
    shape_vars: tuple[rx.Var, ...] = ()
    origins: Mapping[tir.Var, str] = field(default_factory=dict)

    def bindings(self, captured: Sequence[Value]) -> Bindings:
        """The bindings of the variables to these values."""
        count = len(self.size_vars)
        sizes = dict(zip(self.size_vars, captured[:count], strict=True))
        shapes = dict(zip(self.shape_vars, captured[count:], strict=True))
        return Bindings(sizes, dict(self.origins), shapes)


@dataclass(frozen=True, slots=True)
class CompiledSignature:
    """The full checks of one function, which generated code calls if its quick checks fail."""

    signature: Signature
    enclosing: CapturedVars = CapturedVars()
    local: CapturedVars = CapturedVars()

    def arguments(self, *values: Value) -> None:
        """Check the arguments; the values of captured variables follow them."""
        count = len(self.signature.params)
        self.signature.bind(values[:count], self.enclosing.bindings(values[count:]))

    def result(self, value: Value, *captured: Value) -> None:
        """Check the result; the values of captured variables follow it."""
        self.signature.check_result(value, self.local.bindings(captured))


@dataclass(frozen=True, slots=True)
class CompiledCast:
    """The full check of one match_cast, which generated code calls if its quick check fails."""

    sinfo: rx.StructInfo
    title: str
    enclosing: CapturedVars = CapturedVars()
    span: Span | None = None

    def check(self, value: Value, *captured: Value) -> None:
        """Check `value`; the values of captured variables follow it."""
        match_cast(value, self.sinfo, self.enclosing.bindings(captured), self.title, self.span)


@dataclass(frozen=True, slots=True)
class CompiledResult(CompiledCast):
    """The full check of the result of an external function."""

    @override
    def check(self, value: Value, *captured: Value) -> None:
        known = self.enclosing.bindings(captured)
        check_declared_result(value, self.sinfo, known, self.title, self.span)


PublicFunctions: TypeAlias = Mapping[str, tuple[str, Signature]]
"""The names in a module and the signatures of its public functions by symbol."""


def public_signatures(module: IRModule) -> PublicFunctions:
    """The name in the module and the signature of each public function by symbol (TOP-3)."""
    signatures = {}
    for name, func in module.functions_by_name.items():
        symbol = func.attrs.get("global_symbol")
        if symbol is not None and not isinstance(func, rx.ExternFunc):
            signatures[str(symbol)] = (name, signature_of(func, str(symbol)))
    return signatures


def signature_of(func: rx.BaseFunc, name: str) -> Signature:
    """The signature of a Relax function, or that of a kernel from its buffers and scalars.

    The dimensions of a kernel's buffers become int64, whatever the datatype of its indices is.
    """
    if isinstance(func, rx.Function):
        return Signature.of(func, name)
    assert isinstance(func, PrimFunc)
    wide: dict[tir.Var, tir.PrimExpr] = {
        param: ops.cast_to(param, INT64)
        for param in func.params
        if func.buffer_of(param) is None and param.dtype.is_int
    }
    params = []
    for param in func.params:
        buffer = func.buffer_of(param)
        sinfo: rx.StructInfo = rx.ObjectStructInfo()
        if buffer is not None:
            shape = tuple(widened(size, wide) for size in buffer.shape)
            sinfo = rx.TensorStructInfo(rx.ShapeExpr(shape), buffer.dtype)
        elif param.dtype.family != "handle":
            sinfo = rx.PrimStructInfo(param.dtype, param)
        params.append(rx.Var(param.name, sinfo))
    return Signature(name, tuple(params), None, func.span)


def widened(size: tir.PrimExpr, wide: dict[tir.Var, tir.PrimExpr]) -> tir.PrimExpr:
    """`size` computed in int64, with the values `wide`, or new variables of the same names."""

    def rule(node: Node) -> Node | None:
        match node:
            case tir.Var():
                if node not in wide:
                    is_wide = node.dtype == INT64
                    wide[node] = node if is_wide else tir.Var(node.name, INT64)
                return wide[node]
            case tir.IntImm(dtype=dtype, value=value) if not dtype.is_bool:
                return tir.IntImm(INT64, value)
            case tir.Cast(dtype=dtype, value=value) if value.dtype == INT64 and dtype.is_int:
                return value
            case _:
                return None

    found = rewrite(size, rule)
    assert isinstance(found, tir.PrimExpr)
    return found


def closure_sinfo(func: rx.Function) -> rx.FuncStructInfo:
    """The derived struct info of a function if it has its parameters, or else its annotations."""
    match func.struct_info:
        case rx.FuncStructInfo(params=params) as derived if params is not None:
            if len(params) == len(func.params):
                return derived
    sinfos = (p.struct_info or rx.ObjectStructInfo() for p in func.params)
    return rx.FuncStructInfo(
        tuple(sinfos), func.ret_struct_info or rx.ObjectStructInfo(), func.is_pure
    )


def output_sinfos(call: rx.Call) -> tuple[rx.TensorStructInfo, ...]:
    """The struct info of each output of a call in destination-passing style (OP-3).

    Errors:
        CompileError: a datatype or shape is unknown.
    """
    [sinfo] = call.sinfo_args or (None,)
    operator = call.op.name if isinstance(call.op, Op) else call.op
    fields = sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else (sinfo,)
    outputs = []
    for output in fields:
        known = isinstance(output, rx.TensorStructInfo) and output.shape is not None
        if not known or output.dtype.is_void:  # type: ignore[union-attr]
            raise CompileError(
                f"the output of {operator} needs a datatype and a shape, found {output}",
                rule="OP-3",
                span=call.span,
            )
        outputs.append(output)
    return tuple(outputs)  # type: ignore[arg-type]


def declared_result(call: rx.Expr) -> tuple[rx.StructInfo, str] | None:
    """The struct info that a user's function must return in a call, and its name in messages.

    It is None if the call declares nothing or allocates its outputs.
    """
    if not isinstance(call, rx.Call) or isinstance(call.struct_info, rx.ObjectStructInfo | None):
        return None
    callee: object = call.op
    if isinstance(callee, Op):
        kind, run = callee.record.calls, callee.record.runtime
        if kind is None and run is not None and not is_of_relaxpy(run):
            return call.struct_info, f"the result of {callee.name}"
        if not call.sinfo_args or kind is None or kind.has_outputs:
            return None
        callee = call.args[0] if call.args else callee
    elif not call.sinfo_args and not isinstance(callee, rx.ExternFunc):
        return None
    assert isinstance(callee, (rx.Expr, Op))
    name = callee.value if isinstance(callee, rx.StringImm) else callee_name(callee)
    return call.struct_info, f"the result of {name}"


UNUSED: Final = "relax.unused"
"""The attribute of a call of a user's function whose result the program does not use."""


def with_unused_results(module: IRModule) -> IRModule:
    """`module` with `UNUSED` at each declared call whose result is not used (DER-29).

    It is decided before passes, which remove uses.
    """
    from relaxpy.ir.relax.analysis.variables import used_vars  # programs from the disk: unused

    result = module
    for name, func in module.functions.items():
        if not isinstance(func, rx.Function):
            continue
        if not any(_may_mark(call) for call in occurrences(func, rx.Call)):
            continue
        used = frozenset(used_vars(func))

        def mark(node: Node, used: frozenset[rx.Var] = used) -> Node | None:
            if not isinstance(node, rx.VarBinding) or node.var in used:
                return None
            call = node.value
            if not isinstance(call, rx.Call) or not _may_mark(call):
                return None
            return replace(node, value=replace(call, attrs=Attrs({**call.attrs, UNUSED: True})))

        marked = rewrite(func, mark)
        if marked is not func:
            assert isinstance(marked, rx.Function)
            result = module.clone() if result is module else result
            result[name] = marked
    return result


def _may_mark(call: rx.Call) -> bool:
    """True if a function that the call names may return the null object for its result."""
    is_users_operator = isinstance(call.op, Op) and call.op.record.calls is None
    return declared_result(call) is not None and not is_users_operator


def may_be_null(call: rx.Expr) -> bool:
    """True if a function may return None for a declared result: unit, or an unused one."""
    is_unused = isinstance(call, rx.Call) and UNUSED in call.attrs
    return is_unused or call.struct_info == rx.TupleStructInfo(())


def packed_keywords(call: rx.Call) -> dict[str, object]:
    """The keyword arguments of a packed function, which do not include `pure` (LEG-15)."""
    return {name: value for name, value in call.attrs.items() if name not in ("pure", UNUSED)}
