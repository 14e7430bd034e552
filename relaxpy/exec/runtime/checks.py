"""Checks at run time: values against infos, as match_cast and the signatures of functions ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from typing_extensions import override

from relaxpy.errors import FunctionSignatureError, MatchCastError, RuntimeCheckError, counted
from relaxpy.exec.runtime.scalar import Scalar, ScalarEvaluator, checked
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
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import free_shape_vars, is_base_of, substitute_info
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir import expr as tir, ops

if TYPE_CHECKING:
    from relaxpy.errors import Span


@dataclass(slots=True)
class Bindings:
    """The shape variables bound so far, where each was bound, and Vars that may be shapes."""

    sizes: dict[tir.Var, Scalar] = field(default_factory=dict)
    origins: dict[tir.Var, str] = field(default_factory=dict)
    shapes: dict[rx.Var, Value] = field(default_factory=dict)

    def copy(self) -> Bindings:
        """The same bindings; changes to one leave the other as it is."""
        return Bindings(dict(self.sizes), dict(self.origins), dict(self.shapes))

    def adopt(self, other: Bindings) -> None:
        """Take over the shape variables of `other`."""
        self.sizes.update(other.sizes)
        self.origins.update(other.origins)

    def evaluate(self, expr: tir.PrimExpr) -> Scalar:
        """The value of `expr` for the present sizes (PX-1, PX-2, PX-3, PX-4, PX-5, PX-7, PX-9).

        Errors:
            RuntimeCheckError: an unbound variable, a division by zero, or a result out of range.
        """
        return ScalarEvaluator(self.sizes, checked).value(expr)


@dataclass(slots=True)
class _Subject:
    """What is being checked, for messages."""

    title: str
    annotation: rx.StructInfo
    value: Value
    span: Span | None


@dataclass(slots=True)
class _Place:
    """A part of the subject: `text` says which, `rule` what the part has to obey."""

    subject: _Subject
    text: str = ""

    def part(self, text: str) -> _Place:
        return _Place(self.subject, f"{self.text}{text}: ")


_COMPARISON_RULES = frozenset(("MC-4", "MC-7", "MC-10", "MC-12", "MC-16", "MC-17"))


class Matcher:
    """Checks values against infos, from left to right, and binds lone shape variables.

    With `defer`, comparisons wait until `finish`: then everything is bound before the first of them
    (FN-5). With `binds` false nothing is bound (FN-9). `rules` are the IDs given in errors for a
    wrong structure and a wrong size; without them the MC-n rule concerned.
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
        self._waiting: list[Callable[[], None]] = []

    def check(
        self, value: Value, info: rx.StructInfo, title: str, span: Span | None = None
    ) -> None:
        """Check `value`, which `title` names in messages.

        Errors:
            RuntimeCheckError: of the class given, if it does not fit.
        """
        self._structure(value, info, _Place(_Subject(title, info, value, span)))

    def finish(self) -> None:
        """Make the comparisons that were put off."""
        for compare in self._waiting:
            compare()

    def _fail(
        self, place: _Place, problem: str, rule: str, used: Sequence[tir.Var] = ()
    ) -> RuntimeCheckError:
        subject = place.subject
        if self._rules is not None:
            rule = self._rules[1 if rule in _COMPARISON_RULES else 0]
        known = self._bindings
        notes = [
            f"{var.name} = {known.sizes[var]} was bound by {known.origins.get(var, 'the caller')}"
            for var in used
            if var in known.sizes
        ]
        return self._error(
            f"{subject.title}: expected {subject.annotation}, found {describe(subject.value)}: "
            f"{place.text}{problem}",
            rule=rule,
            span=subject.span,
            notes=notes,
            hint=_hint(subject.value, subject.annotation),
        )

    def _later(self, compare: Callable[[], None]) -> None:
        if self._defer:
            self._waiting.append(compare)
        else:
            compare()

    def _category(self, value: Value, place: _Place, *expected: Category) -> None:
        found = category_of(value)
        if found not in expected:
            wanted = " or ".join(f"a {c.value}" for c in expected)
            name = f"a {found.value}"
            if found is Category.OBJECT:
                name = describe(value) if place.text else "it"
            raise self._fail(place, f"{name} is not {wanted}", "MC-2")

    def _structure(self, value: Value, info: rx.StructInfo, place: _Place) -> None:
        """Check everything but dimensions and values that are compared later.

        Rule:
            Kinds MC-1, MC-2; ranks and datatypes MC-3, MC-9, MC-11; fields MC-13; functions MC-14,
            MC-15, MC-16, MC-17.
        """
        assert isinstance(info, rx.AnyStructInfo)
        match info:
            case rx.ObjectStructInfo():
                return
            case rx.TensorStructInfo():
                self._tensor(value, info, place)
            case rx.PrimStructInfo():
                self._prim(value, info, place)
            case rx.ShapeStructInfo(values=values, ndim=ndim):
                self._category(value, place, Category.SHAPE)
                if ndim not in (-1, len(value)):
                    raise self._fail(
                        place, f"it has {counted(len(value), 'dimension')}, not {ndim}", "MC-11"
                    )
                if values is not None:
                    self._sizes(value, values, place, "MC-12")
            case rx.TupleStructInfo(fields=fields):
                self._category(value, place, Category.TUPLE)
                if len(value) != len(fields):
                    raise self._fail(
                        place,
                        f"it has {counted(len(value), 'field')}, not {len(fields)}",
                        "MC-13",
                    )
                for i, (part, part_info) in enumerate(zip(value, fields, strict=True)):
                    self._structure(part, part_info, place.part(f"field {i}"))
            case rx.FuncStructInfo():
                self._function(value, info, place)
            case _:
                assert_never(info)

    def _tensor(self, value: Value, info: rx.TensorStructInfo, place: _Place) -> None:
        self._category(value, place, Category.TENSOR)
        if info.ndim not in (-1, value.ndim):
            raise self._fail(place, f"its rank (ndim) is {value.ndim}, not {info.ndim}", "MC-3")
        if not info.dtype.is_void:
            if info.dtype != DataType(value.dtype.name):
                raise self._fail(
                    place, f"its dtype is {value.dtype.name}, not {info.dtype}", "MC-3"
                )
            if not value.dtype.isnative:
                raise self._fail(place, "the bytes of its elements are swapped", "MC-3")
        if isinstance(info.shape, rx.ShapeExpr):
            self._sizes(value.shape, info.shape.values, place, "MC-7")
        elif isinstance(info.shape, rx.Var):
            shape_var = info.shape
            self._later(lambda: self._same_shape(value, shape_var, place))

    def _same_shape(self, value: Value, shape_var: rx.Var, place: _Place) -> None:
        expected = self._bindings.shapes.get(shape_var)
        name = shape_var.name_hint
        if not isinstance(expected, ShapeTuple):
            raise self._fail(place, f"{name} holds {describe(expected)}, no shape", "MC-4")
        if value.shape != tuple(expected):
            raise self._fail(
                place, f"its shape is {value.shape}, but {name} is {tuple(expected)}", "MC-4"
            )

    def _prim(self, value: Value, info: rx.PrimStructInfo, place: _Place) -> None:
        self._category(value, place, Category.PRIM)
        if prim_dtype(value) != info.dtype:
            raise self._fail(place, f"its dtype is {prim_dtype(value)}, not {info.dtype}", "MC-9")
        if info.value is not None:
            self._size(value, info.value, place, "its value", "MC-10")

    def _sizes(
        self, found: Sequence[int], expected: Sequence[tir.PrimExpr], place: _Place, rule: str
    ) -> None:
        if len(found) != len(expected):
            raise self._fail(
                place, f"it has {counted(len(found), 'dimension')}, not {len(expected)}", "MC-5"
            )
        for axis, (size, expr) in enumerate(zip(found, expected, strict=True)):
            self._size(size, expr, place, f"dimension {axis}", rule)

    def _size(self, found: Scalar, expr: tir.PrimExpr, place: _Place, what: str, rule: str) -> None:
        sizes = self._bindings.sizes
        if isinstance(expr, tir.Var) and expr not in sizes and self._binds:
            sizes[expr] = found
            self._bindings.origins[expr] = f"{what} of {place.subject.title}"
            return
        self._later(lambda: self._equal(found, expr, place, what, rule))

    def _equal(
        self, found: Scalar, expr: tir.PrimExpr, place: _Place, what: str, rule: str
    ) -> None:
        try:
            expected = self._bindings.evaluate(expr)
        except RuntimeCheckError as error:
            error.located(place.subject.span)
            raise
        if found == expected:
            return
        text = ShortText().prim(expr, INT64)
        how = f"not {expected}" if isinstance(expr, tir.ConstExpr) else f"but {text} = {expected}"
        used = [v for v in walk(expr) if isinstance(v, tir.Var)]
        raise self._fail(place, f"{what} is {found}, {how}", rule, used)

    def _function(self, value: Value, info: rx.FuncStructInfo, place: _Place) -> None:
        if info.params is None:
            self._category(value, place, Category.PACKED_FUNC)
            return
        self._category(value, place, Category.CLOSURE, Category.PRIM_FUNC)
        self._later(lambda: self._signature(value, info, place))

    def _signature(self, value: FunctionValue, info: rx.FuncStructInfo, place: _Place) -> None:
        known = self._bindings.sizes
        expected = substitute_info(
            info,
            {v: ops.const(known[v], v.dtype) for v in free_shape_vars(info, known) if v in known},
        )
        found = value.struct_info
        if info.purity and not found.purity:
            raise self._fail(place, "it is impure", "MC-17")
        if not is_base_of(expected, found):
            raise self._fail(place, f"{found} is not below {expected}", "MC-16")


def _hint(value: Value, info: rx.StructInfo) -> str | None:
    """What to pass instead, where a usual kind of Python object does not do."""
    if isinstance(info, rx.TensorStructInfo) and isinstance(value, (list, tuple)):
        dtype = "" if info.dtype.is_void else f', "{info.dtype}"'
        return f"make an array of it: numpy.asarray(...{dtype})"
    if isinstance(info, rx.ShapeStructInfo) and isinstance(value, (list, tuple)):
        return "make a shape of it with relaxpy.runtime.ShapeTuple"
    wrong_type = isinstance(info, rx.TensorStructInfo) and category_of(value) is Category.TENSOR
    if wrong_type and not info.dtype.is_void and value.dtype.name != info.dtype:  # type: ignore[attr-defined]
        return f'convert it with .astype("{info.dtype}")'  # type: ignore[attr-defined]
    return None


def match_cast(
    value: Value,
    info: rx.StructInfo,
    bindings: Bindings,
    title: str = "match_cast",
    span: Span | None = None,
) -> None:
    """Check `value` against `info`, and add to `bindings` what the cast binds (MC-6, MC-18).

    Errors:
        MatchCastError: it does not fit; then nothing is bound.
    """
    trial = bindings.copy()
    Matcher(trial, MatchCastError).check(value, info, title, span)
    bindings.adopt(trial)


def check_declared_result(
    value: Value, info: rx.StructInfo, bindings: Bindings, title: str, span: Span | None
) -> None:
    """Check what a function outside the program returned against what its call declares (DER-29).

    A function that returns nothing may be declared as anything: null is no tensor of another shape.

    Errors:
        FunctionSignatureError: it does not fit.
    """
    if value is not None:
        rules = ("DER-29", "DER-29")
        matcher = Matcher(bindings, FunctionSignatureError, binds=False, rules=rules)
        matcher.check(value, info, title, span)


def place_of(binding: rx.Binding) -> Span | None:
    """Where what goes wrong in a binding is to be found: of a cast, where its value stands."""
    found = (binding.value.span, binding.span)
    first, second = reversed(found) if isinstance(binding, rx.MatchCast) else found
    return first or second


def cast_title(binding: rx.MatchCast, function_name: str) -> str:
    """What messages call a match_cast."""
    of = f" of {binding.var.name_hint}" if binding.var is not None else ""
    return f"match_cast{of}" + (f" in {function_name}" if function_name else "")


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call of a Relax function checks (FN-1, FN-2, FN-8, FN-10, FN-11)."""

    name: str
    params: tuple[rx.Var, ...]
    ret: rx.StructInfo | None
    span: Span | None = None

    @staticmethod
    def of(func: rx.Function, name: str) -> Signature:
        """The signature of `func`, which messages call `name`."""
        return Signature(name, func.params, func.ret_struct_info, func.span)

    @override
    def __str__(self) -> str:
        params = ", ".join(
            param.name_hint + (f": {param.struct_info}" if param.struct_info is not None else "")
            for param in self.params
        )
        return f"{self.name}({params})" + (f" -> {self.ret}" if self.ret is not None else "")

    def check_count(self, count: int) -> None:
        """Errors: RuntimeCheckError unless there are `count` parameters (FN-11)."""
        if count != len(self.params):
            raise RuntimeCheckError(
                f"{self.name} takes {counted(len(self.params), 'argument')}, found {count}",
                rule="FN-11",
                span=self.span,
                notes=(f"its signature is {self}",),
            )

    def bind(self, args: Sequence[Value], bindings: Bindings) -> None:
        """Check the arguments and add to `bindings` what they bind.

        Rule:
            FN-1, FN-3, FN-4, FN-5, FN-6, FN-7.

        Errors:
            FunctionSignatureError: an argument does not fit. RuntimeCheckError: a wrong number.
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
        """Compare the result with the return annotation (FN-8, FN-9).

        Errors:
            FunctionSignatureError: it does not fit.
        """
        if self.ret is None:
            return
        matcher = Matcher(bindings, FunctionSignatureError, binds=False, rules=("FN-8", "FN-8"))
        matcher.check(result, self.ret, f"the result of {self.name}", self.span)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What generated code passes to a check after the value: captured sizes, then shape values."""

    size_vars: tuple[tir.Var, ...] = ()
    shape_vars: tuple[rx.Var, ...] = ()
    origins: Mapping[tir.Var, str] = field(default_factory=dict)

    def bindings(self, captured: Sequence[Value]) -> Bindings:
        """The bindings that these values stand for."""
        count = len(self.size_vars)
        sizes = dict(zip(self.size_vars, captured[:count], strict=True))
        shapes = dict(zip(self.shape_vars, captured[count:], strict=True))
        return Bindings(sizes, dict(self.origins), shapes)


@dataclass(frozen=True, slots=True)
class CompiledSignature:
    """The full checks of one function, which generated code calls where its quick ones fail."""

    signature: Signature
    outside: Surroundings = Surroundings()
    inside: Surroundings = Surroundings()

    def arguments(self, *values: Value) -> None:
        """Check the arguments, which are followed by what is captured.

        Errors:
            FunctionSignatureError: an argument does not fit.
        """
        count = len(self.signature.params)
        self.signature.bind(values[:count], self.outside.bindings(values[count:]))

    def result(self, value: Value, *captured: Value) -> None:
        """Check the result, which is followed by sizes and shapes of the function.

        Errors:
            FunctionSignatureError: it does not fit.
        """
        self.signature.check_result(value, self.inside.bindings(captured))


@dataclass(frozen=True, slots=True)
class CompiledCast:
    """The full check of one match_cast, which generated code calls where its quick one fails."""

    info: rx.StructInfo
    title: str
    outside: Surroundings = Surroundings()
    span: Span | None = None

    def check(self, value: Value, *captured: Value) -> None:
        """Check `value`, which is followed by sizes and shapes that the info uses.

        Errors:
            MatchCastError: it does not fit.
        """
        match_cast(value, self.info, self.outside.bindings(captured), self.title, self.span)


@dataclass(frozen=True, slots=True)
class CompiledResult(CompiledCast):
    """The full check of what a call of a function outside the program returned."""

    @override
    def check(self, value: Value, *captured: Value) -> None:
        """Check `value`, which is followed by sizes and shapes that the info uses.

        Errors:
            FunctionSignatureError: it does not fit.
        """
        known = self.outside.bindings(captured)
        check_declared_result(value, self.info, known, self.title, self.span)
