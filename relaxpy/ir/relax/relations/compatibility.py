"""Compatibility and `<<:`: whether one info is accepted where another is expected (CMP, SUB)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import IntEnum

from relaxpy.entry import user_facing
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.base import as_struct_info
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations.mapping import map_params
from relaxpy.ir.relax.relations.shape_vars import (
    alpha_rename,
    alpha_rename_clashes,
    as_scope,
    bound_shape_vars,
    extended,
    sizes_of,
    substitute_info,
)
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir import expr as tir


class Compatibility(IntEnum):
    """The answers of `check_compatibility`, the worst one first."""

    INCOMPATIBLE = 0
    POSSIBLE = 1
    COMPATIBLE = 2


class BaseCheckResult(IntEnum):
    """TVM's answers to whether an info is below another one."""

    FAIL_L0 = 0
    FAIL_L1 = 1
    FAIL_L2 = 2
    PASS = 3


_KINDS: dict[type[rx.StructInfo], str] = {
    rx.ObjectStructInfo: "an object",
    rx.PrimStructInfo: "a prim value",
    rx.ShapeStructInfo: "a shape",
    rx.TensorStructInfo: "a tensor",
    rx.TupleStructInfo: "a tuple",
    rx.FuncStructInfo: "a function",
    DTensorStructInfo: "a distributed tensor",
}
YES, MAYBE, NO = Compatibility.COMPATIBLE, Compatibility.POSSIBLE, Compatibility.INCOMPATIBLE


class _Check:
    """One comparison; with `findings`, says what was found wanting and where."""

    def __init__(self, findings: list[tuple[Compatibility, str]] | None) -> None:
        self.findings = findings
        self.path: list[str] = []

    def found(self, answer: Compatibility, what: str, *parts: object) -> Compatibility:
        """`answer`, noted down with the text that `what` makes of `parts`."""
        if self.findings is not None:
            text = what.format(*map(_text, parts))
            self.findings.append((answer, ": ".join([*self.path, text])))
        return answer

    def compare(
        self, s1: rx.StructInfo, s2: rx.StructInfo, scope: Container[tir.Var]
    ) -> Compatibility:
        """Whether `s1` is accepted where `s2` is expected."""
        if s1 is s2 or isinstance(s2, rx.ObjectStructInfo):
            return YES
        match s1, s2:
            case rx.TensorStructInfo(), rx.TensorStructInfo():
                return self.tensors(s1, s2)
            case rx.ShapeStructInfo(), rx.ShapeStructInfo():
                return self.shapes(s1, s2)
            case rx.TupleStructInfo(), rx.TupleStructInfo():
                return self.tuples(s1, s2, scope)
            case rx.PrimStructInfo(), rx.PrimStructInfo():
                return self.prims(s1, s2)
            case rx.FuncStructInfo(), rx.FuncStructInfo():
                return self.functions(s1, s2, scope)
            case DTensorStructInfo(), DTensorStructInfo():
                return self.distributed(s1, s2)
            case _:
                kinds = _KINDS.get(type(s1), "unknown"), _KINDS.get(type(s2), "unknown")
                return self.found(NO, "{} is not {}", *kinds)

    def part(
        self, where: str, s1: rx.StructInfo, s2: rx.StructInfo, scope: Container[tir.Var]
    ) -> Compatibility:
        """`compare` of two parts, which `where` names."""
        self.path.append(where)
        answer = self.compare(s1, s2, scope)
        self.path.pop()
        return answer

    def tuples(
        self, s1: rx.TupleStructInfo, s2: rx.TupleStructInfo, scope: Container[tir.Var]
    ) -> Compatibility:
        """CMP-6, CMP-7."""
        a, b = s1.fields, s2.fields
        if len(a) != len(b):
            return self.found(NO, "{} fields are not {}", len(a), len(b))
        answers = [
            self.part(f"field {i}", x, y, scope) for i, (x, y) in enumerate(zip(a, b, strict=True))
        ]
        return min(answers, default=YES)

    def distributed(self, s1: DTensorStructInfo, s2: DTensorStructInfo) -> Compatibility:
        """As the whole tensors are, where they lie alike."""
        if s1.device_mesh != s2.device_mesh:
            return self.found(NO, "mesh {} is not {}", s1.device_mesh, s2.device_mesh)
        if s1.placement != s2.placement:
            return self.found(NO, "placement {} is not {}", s1.placement, s2.placement)
        return self.tensors(s1.tensor_sinfo, s2.tensor_sinfo)

    def shapes(self, s1: rx.ShapeStructInfo, s2: rx.ShapeStructInfo) -> Compatibility:
        """CMP-8, CMP-9, CMP-10."""
        if s2.ndim == -1 and s2.values is None:
            return YES
        if s1.ndim != s2.ndim:
            return self.found(NO, "{} is not {}", rank_text(s1.ndim), rank_text(s2.ndim))
        if s2.values is None:
            return YES
        if s1.values is None:
            return self.found(MAYBE, "the members are not known")
        return self.sizes("member", s1.values, s2.values)

    def tensors(self, s1: rx.TensorStructInfo, s2: rx.TensorStructInfo) -> Compatibility:
        """CMP-11, CMP-12, CMP-13, CMP-14, CMP-15."""
        if not s2.dtype.is_void and s1.dtype != s2.dtype:
            found = f"dtype {s1.dtype}" if not s1.dtype.is_void else "an unknown dtype"
            return self.found(NO, "{} is not {}", found, s2.dtype)
        if s2.ndim not in (-1, s1.ndim):
            return self.found(NO, "{} is not {}", rank_text(s1.ndim), rank_text(s2.ndim))
        if s2.vdevice is not None and s1.vdevice != s2.vdevice:
            return self.found(NO, "device {} is not {}", s1.vdevice, s2.vdevice)
        if s2.shape is None or s1.shape is s2.shape:
            return YES
        if s1.shape is None:
            return self.found(MAYBE, "the shape is not known")
        a, b = s1.get_shape(), s2.get_shape()
        if a is None or b is None:
            ranks = shape_rank(s1), shape_rank(s2)
            if -1 not in ranks and ranks[0] != ranks[1]:
                return self.found(NO, "{} is not {}", rank_text(ranks[0]), rank_text(ranks[1]))
            return self.found(MAYBE, "the shape may not be {}", s2.shape)
        return self.sizes("dimension", a, b)

    def sizes(
        self, what: str, a: Sequence[tir.PrimExpr], b: Sequence[tir.PrimExpr]
    ) -> Compatibility:
        """Incompatible if a pair is provably unequal, compatible if all are provably equal."""
        if len(a) != len(b):
            return self.found(NO, "{} is not {}", rank_text(len(a)), rank_text(len(b)))
        worst = YES
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if x is not y:
                self.path.append(f"{what} {i}")
                worst = min(worst, self.size(x, y))
                self.path.pop()
                if worst is NO:
                    break
        return worst

    def size(self, a: tir.PrimExpr, b: tir.PrimExpr) -> Compatibility:
        """The prover's answer for two sizes."""
        same = prove_equal(a, b)
        if same:
            return YES
        if same is None:
            return self.found(MAYBE, "{} may not be {}", a, b)
        return self.found(NO, "{} is not {}", a, b)

    def prims(self, s1: rx.PrimStructInfo, s2: rx.PrimStructInfo) -> Compatibility:
        """CMP-16."""
        if s1.dtype != s2.dtype:
            return self.found(NO, "dtype {} is not {}", s1.dtype, s2.dtype)
        if s2.value is None:
            return YES
        if s1.value is None:
            return self.found(MAYBE, "the value is not known")
        return self.size(s1.value, s2.value)

    def functions(
        self, s1: rx.FuncStructInfo, s2: rx.FuncStructInfo, scope: Container[tir.Var]
    ) -> Compatibility:
        """CMP-17, CMP-18, CMP-19, CMP-20, CMP-21, CMP-22."""
        if s2.purity and not s1.purity:
            return self.found(NO, "an impure function is not a pure one")
        if s1.params is None and s2.params is None:
            if s2.derive_func in (s1.derive_func, rx.EMPTY_DERIVE):
                return YES
            return self.found(MAYBE, "its results are derived in another way")
        if s1.params is None or s2.params is None:
            forms = ("a packed function", "one with known parameters")
            return self.found(NO, "{} is not {}", *(forms if s1.params is None else forms[::-1]))
        if len(s1.params) != len(s2.params):
            return self.found(NO, "{} parameters are not {}", len(s1.params), len(s2.params))
        s2 = alpha_rename_clashes(s2, s1, scope)
        inner, own = instantiated(s1, s2, scope)
        assert inner.params is not None
        assert s2.params is not None
        inside = extended(scope, own)
        worst = YES
        for i, (x, y) in enumerate(zip(s2.params, inner.params, strict=True)):
            worst = min(worst, self.part(f"parameter {i}", x, y, inside))
        return min(worst, self.part("result", inner.ret, s2.ret, inside))


def instantiated(
    s1: rx.FuncStructInfo, s2: rx.FuncStructInfo, scope: Container[tir.Var]
) -> tuple[rx.FuncStructInfo, tuple[tir.Var, ...]]:
    """`s1` with what `s2` has for its own variables, and what both bind inside (CMP-20)."""
    own2 = bound_shape_vars(s2, scope)
    renamed = alpha_rename(s1, scope)
    assert renamed.params is not None
    assert s2.params is not None
    own1 = bound_shape_vars(renamed, scope)
    images = map_params(renamed.params, s2.params, scope)
    return substitute_info(renamed, images), (*own1, *own2)


def _text(part: object) -> object:
    return ShortText().prim(part, INT64) if isinstance(part, tir.PrimExpr) else part


def rank_text(ndim: int) -> str:
    """A rank in words."""
    return "an unknown rank" if ndim == -1 else f"rank {ndim}"


def shape_rank(info: rx.TensorStructInfo) -> int:
    """The rank that the shape, or else the info, states."""
    if info.shape is not None and isinstance(info.shape.struct_info, rx.ShapeStructInfo):
        return info.shape.struct_info.ndim
    return info.ndim


@user_facing
def check_compatibility(
    value: rx.StructInfo, expected: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> Compatibility:
    """Whether a value of info `value` is accepted where `expected` is.

    Rule:
        CMP-4, CMP-5, CMP-6, CMP-7, CMP-16, CMP-23, CMP-24.
        `shape_vars` are in scope around both: no Func info owns them (SC-16).
    Errors:
        MisuseError (also TypeError): one of the two is no info, or `shape_vars` no variables.
    """
    scope = as_scope(shape_vars)
    return _Check(None).compare(as_struct_info(value), as_struct_info(expected), scope)


@user_facing
def explain_incompatibility(
    value: rx.StructInfo, expected: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> str | None:
    """What keeps `value` from being `expected`, innermost part first to last; None if nothing does.

    A proved mismatch is named before an unproved match: `dimension 1: 5 is not 6`.
    """
    findings: list[tuple[Compatibility, str]] = []
    scope = as_scope(shape_vars)
    _Check(findings).compare(as_struct_info(value), as_struct_info(expected), scope)
    return min(findings, key=lambda f: f[0])[1] if findings else None


@user_facing
def is_base_of(
    base: rx.StructInfo, derived: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> bool:
    """Whether `derived <<: base`: every value of info `derived` provably has info `base`.

    Rule:
        SUB-1, SUB-2, SUB-3, SUB-4, SUB-5, SUB-6, SUB-7, SUB-8, SUB-9, SUB-10, SUB-11, SUB-12,
        SUB-13, SUB-14, SUB-15, SUB-16, SUB-17, SUB-18, SUB-19. CMP-24 makes it the answer
        "compatible".
    """
    return check_compatibility(derived, base, shape_vars) is YES


@user_facing
def provably_disjoint(
    a: rx.StructInfo, b: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> bool:
    """Whether no value has both infos, as far as that can be proved.

    Rule:
        RES-19: different kinds, forms, arities, lengths, known ranks, datatypes or devices, or a
        provably unequal size, at any depth outside functions.
    """
    a, b = as_struct_info(a), as_struct_info(b)
    if isinstance(a, rx.ObjectStructInfo) or isinstance(b, rx.ObjectStructInfo):
        return False
    match a, b:
        case rx.TensorStructInfo(), rx.TensorStructInfo():
            dtypes = {d for d in (a.dtype, b.dtype) if not d.is_void}
            ranks = {shape_rank(a), shape_rank(b), a.ndim, b.ndim} - {-1}
            devices = {d for d in (a.vdevice, b.vdevice) if d is not None}
            apart = max(len(dtypes), len(ranks), len(devices)) > 1
            return apart or _unequal(a.get_shape(), b.get_shape())
        case rx.ShapeStructInfo(), rx.ShapeStructInfo():
            return len({a.ndim, b.ndim} - {-1}) > 1 or _unequal(a.values, b.values)
        case rx.PrimStructInfo(), rx.PrimStructInfo():
            return a.dtype != b.dtype or _unequal(sizes_of(a), sizes_of(b))
        case rx.TupleStructInfo(), rx.TupleStructInfo():
            return len(a.fields) != len(b.fields) or any(
                provably_disjoint(x, y, shape_vars) for x, y in zip(a.fields, b.fields, strict=True)
            )
        case DTensorStructInfo(), DTensorStructInfo():
            alike = a.device_mesh == b.device_mesh and a.placement == b.placement
            return not alike or provably_disjoint(a.tensor_sinfo, b.tensor_sinfo, shape_vars)
        case rx.FuncStructInfo(params=p), rx.FuncStructInfo(params=q):
            if p is None or q is None:
                return p is not q
            return len(p) != len(q)
        case _:
            return True


def explain_disjointness(
    a: rx.StructInfo, b: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> str | None:
    """What keeps `a` from being `b` once all that is open in `a` is taken to be as in `b`."""
    return explain_incompatibility(_settled(a, b), b, shape_vars)


def _settled(a: rx.StructInfo, b: rx.StructInfo) -> rx.StructInfo:
    """`a`, what is not known of it being as `b` says."""
    match a, b:
        case rx.ObjectStructInfo(), _:
            return b
        case rx.TensorStructInfo(), rx.TensorStructInfo():
            dtype = b.dtype if a.dtype.is_void else a.dtype
            device = b.vdevice if a.vdevice is None else a.vdevice
            ndim = b.ndim if shape_rank(a) == -1 else shape_rank(a)
            return rx.TensorStructInfo(a.shape, dtype, device, ndim)
        case rx.ShapeStructInfo(values=None, ndim=-1), rx.ShapeStructInfo():
            return rx.ShapeStructInfo(None, b.ndim)
        case rx.TupleStructInfo(fields=p), rx.TupleStructInfo(fields=q) if len(p) == len(q):
            return rx.TupleStructInfo(tuple(_settled(x, y) for x, y in zip(p, q, strict=True)))
        case _:
            return a


def _unequal(a: Sequence[tir.PrimExpr] | None, b: Sequence[tir.PrimExpr] | None) -> bool:
    if not a or not b:
        return False
    return len(a) != len(b) or any(map(_differ, a, b))


def _differ(a: tir.PrimExpr, b: tir.PrimExpr) -> bool:
    return prove_equal(a, b) is False


@user_facing
def struct_info_base_check(
    base: rx.StructInfo, derived: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> BaseCheckResult:
    """TVM's form of the question: PASS, FAIL_L2 for possibly, FAIL_L1 and FAIL_L0 for no.

    FAIL_L0 says that no value has both infos, FAIL_L1 that a match_cast may succeed.
    """
    answer = check_compatibility(derived, base, shape_vars)
    if answer is YES:
        return BaseCheckResult.PASS
    if answer is MAYBE:
        return BaseCheckResult.FAIL_L2
    disjoint = provably_disjoint(base, derived, shape_vars)
    return BaseCheckResult.FAIL_L0 if disjoint else BaseCheckResult.FAIL_L1
