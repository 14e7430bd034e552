"""Compatibility (CMP), the order `<<:` (SUB), and the bounds (LUB, GLB) of struct info."""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import IntEnum
from operator import is_

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64, VOID
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import equal_shapes
from relaxpy.ir.relax.nodes.base_classes import as_struct_info
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations.shape_vars import (
    alpha_rename,
    alpha_rename_clashes,
    as_scope,
    bound_shape_vars,
    extended,
    free_shape_vars,
    map_params,
    matched_pairs,
    sizes_of,
    substitute_info,
)
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing


class Compatibility(IntEnum):
    """The results of `check_compatibility`, the worst one first."""

    INCOMPATIBLE = 0
    POSSIBLE = 1
    COMPATIBLE = 2


class BaseCheckResult(IntEnum):
    """The results of `struct_info_base_check`, as in TVM."""

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
    """One comparison, which lists its mismatches if there is a list for them."""

    def __init__(self, mismatches: list[tuple[Compatibility, str]] | None) -> None:
        self.mismatches = mismatches
        self.path: list[str] = []

    def mismatch(self, result: Compatibility, template: str, *operands: object) -> Compatibility:
        """List `template`, filled in with the texts of the operands; `result` is unchanged."""
        if self.mismatches is not None:
            text = template.format(*map(_text, operands))
            self.mismatches.append((result, ": ".join([*self.path, text])))
        return result

    def compare(
        self, s1: rx.StructInfo, s2: rx.StructInfo, scope: Container[tir.Var]
    ) -> Compatibility:
        """True if `s1` is accepted where `s2` is expected."""
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
                return self.mismatch(NO, "{} is not {}", *kinds)

    def nested(
        self, name: str, s1: rx.StructInfo, s2: rx.StructInfo, scope: Container[tir.Var]
    ) -> Compatibility:
        """Compare two nested struct infos; `name` is the last step of the path to them."""
        self.path.append(name)
        result = self.compare(s1, s2, scope)
        self.path.pop()
        return result

    def tuples(
        self, s1: rx.TupleStructInfo, s2: rx.TupleStructInfo, scope: Container[tir.Var]
    ) -> Compatibility:
        """CMP-6, CMP-7."""
        a, b = s1.fields, s2.fields
        if len(a) != len(b):
            return self.mismatch(NO, "{} fields are not {}", len(a), len(b))
        pairs = enumerate(zip(a, b, strict=True))
        results = [self.nested(f"field {i}", x, y, scope) for i, (x, y) in pairs]
        return min(results, default=YES)

    def distributed(self, s1: DTensorStructInfo, s2: DTensorStructInfo) -> Compatibility:
        """The result for the whole tensors, if they are distributed in the same way."""
        if s1.device_mesh != s2.device_mesh:
            return self.mismatch(NO, "mesh {} is not {}", s1.device_mesh, s2.device_mesh)
        if s1.placement != s2.placement:
            return self.mismatch(NO, "placement {} is not {}", s1.placement, s2.placement)
        return self.tensors(s1.tensor_sinfo, s2.tensor_sinfo)

    def shapes(self, s1: rx.ShapeStructInfo, s2: rx.ShapeStructInfo) -> Compatibility:
        """CMP-8, CMP-9, CMP-10."""
        if s2.ndim == -1 and s2.values is None:
            return YES
        if s1.ndim != s2.ndim:
            return self.mismatch(NO, "{} is not {}", rank_text(s1.ndim), rank_text(s2.ndim))
        if s2.values is None:
            return YES
        if s1.values is None:
            return self.mismatch(MAYBE, "the members are not known")
        return self.sizes("member", s1.values, s2.values)

    def tensors(self, s1: rx.TensorStructInfo, s2: rx.TensorStructInfo) -> Compatibility:
        """CMP-11, CMP-12, CMP-13, CMP-14, CMP-15."""
        if not s2.dtype.is_void and s1.dtype != s2.dtype:
            actual = f"dtype {s1.dtype}" if not s1.dtype.is_void else "an unknown dtype"
            return self.mismatch(NO, "{} is not {}", actual, s2.dtype)
        if s2.ndim not in (-1, s1.ndim):
            return self.mismatch(NO, "{} is not {}", rank_text(s1.ndim), rank_text(s2.ndim))
        if s2.vdevice is not None and s1.vdevice != s2.vdevice:
            return self.mismatch(NO, "device {} is not {}", s1.vdevice, s2.vdevice)
        if s2.shape is None or s1.shape is s2.shape:
            return YES
        if s1.shape is None:
            return self.mismatch(MAYBE, "the shape is not known")
        a, b = s1.get_shape(), s2.get_shape()
        if a is None or b is None:
            return self.mismatch(MAYBE, "the shape may not be {}", s2.shape)
        return self.sizes("dimension", a, b)

    def sizes(
        self, what: str, a: Sequence[tir.PrimExpr], b: Sequence[tir.PrimExpr]
    ) -> Compatibility:
        """Incompatible if a pair is provably unequal, compatible if all are provably equal."""
        if len(a) != len(b):
            return self.mismatch(NO, "{} is not {}", rank_text(len(a)), rank_text(len(b)))
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
        """True if two sizes are provably equal."""
        equal = prove_equal(a, b)
        if equal:
            return YES
        if equal is None:
            return self.mismatch(MAYBE, "{} may not be {}", a, b)
        return self.mismatch(NO, "{} is not {}", a, b)

    def prims(self, s1: rx.PrimStructInfo, s2: rx.PrimStructInfo) -> Compatibility:
        """CMP-16."""
        if s1.dtype != s2.dtype:
            return self.mismatch(NO, "dtype {} is not {}", s1.dtype, s2.dtype)
        if s2.value is None:
            return YES
        if s1.value is None:
            return self.mismatch(MAYBE, "the value is not known")
        return self.size(s1.value, s2.value)

    def functions(
        self, s1: rx.FuncStructInfo, s2: rx.FuncStructInfo, scope: Container[tir.Var]
    ) -> Compatibility:
        """CMP-17, CMP-18, CMP-19, CMP-20, CMP-21, CMP-22."""
        if s2.purity and not s1.purity:
            return self.mismatch(NO, "an impure function is not a pure one")
        if s1.params is None and s2.params is None:
            if s2.derive_func in (s1.derive_func, rx.EMPTY_DERIVE):
                return YES
            return self.mismatch(MAYBE, "its results are derived in another way")
        if s1.params is None or s2.params is None:
            forms = ("a packed function", "one with known parameters")
            return self.mismatch(NO, "{} is not {}", *(forms if s1.params is None else forms[::-1]))
        if len(s1.params) != len(s2.params):
            return self.mismatch(NO, "{} parameters are not {}", len(s1.params), len(s2.params))
        s2 = alpha_rename_clashes(s2, s1, scope)
        s1, bound = instantiated(s1, s2, scope)
        assert s1.params is not None
        assert s2.params is not None
        inner = extended(scope, bound)
        worst = YES
        for i, (x, y) in enumerate(zip(s2.params, s1.params, strict=True)):
            worst = min(worst, self.nested(f"parameter {i}", x, y, inner))
        return min(worst, self.nested("result", s1.ret, s2.ret, inner))


def instantiated(
    s1: rx.FuncStructInfo, s2: rx.FuncStructInfo, scope: Container[tir.Var]
) -> tuple[rx.FuncStructInfo, tuple[tir.Var, ...]]:
    """`s1` with its bound variables replaced as `s2` has them, and what both bind (CMP-20)."""
    renamed = alpha_rename(s1, scope)
    assert renamed.params is not None
    assert s2.params is not None
    bound = (*bound_shape_vars(renamed, scope), *bound_shape_vars(s2, scope))
    return substitute_info(renamed, map_params(renamed.params, s2.params, scope)), bound


def _text(operand: object) -> object:
    return shown(operand) if isinstance(operand, tir.PrimExpr) else operand


def shown(size: tir.PrimExpr) -> str:
    """The text of a dimension in messages."""
    from relaxpy.ir.short_text.nodes import ShortText  # for errors alone

    return ShortText().prim(size, INT64)


def rank_text(ndim: int) -> str:
    """A rank as messages write it."""
    return "an unknown rank" if ndim == -1 else f"rank {ndim}"


def shape_rank(sinfo: rx.TensorStructInfo) -> int:
    """The rank of the shape, or the declared rank if there is no shape."""
    if sinfo.shape is not None and isinstance(sinfo.shape.struct_info, rx.ShapeStructInfo):
        return sinfo.shape.struct_info.ndim
    return sinfo.ndim


@user_facing
def check_compatibility(
    value: rx.StructInfo, expected: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> Compatibility:
    """True if a value with struct info `value` is accepted where `expected` is declared.

    Rule:
        CMP-4, CMP-5, CMP-6, CMP-7, CMP-16, CMP-23, CMP-24.
        `shape_vars` are in scope at both, so that no Callable binds them (SC-16).
    Errors:
        MisuseError (also TypeError): an operand is not a StructInfo, or `shape_vars` are not
            variables.
    """
    scope = as_scope(shape_vars)
    return _Check(None).compare(as_struct_info(value), as_struct_info(expected), scope)


@user_facing
def explain_incompatibility(
    value: rx.StructInfo, expected: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> str | None:
    """The reason why `value` is not accepted where `expected` is declared, or None if it is.

    The text is the path to the first mismatch, such as `field 0: dimension 1: 5 is not 6`. Provable
    differences take precedence over possible ones.
    """
    mismatches: list[tuple[Compatibility, str]] = []
    scope = as_scope(shape_vars)
    _Check(mismatches).compare(as_struct_info(value), as_struct_info(expected), scope)
    return min(mismatches, key=lambda m: m[0])[1] if mismatches else None


@user_facing
def is_base_of(
    base: rx.StructInfo, derived: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> bool:
    """True if `derived <<: base`: `base` provably describes every value that `derived` describes.

    Rule:
        SUB-1, SUB-2, SUB-3, SUB-4, SUB-5, SUB-6, SUB-7, SUB-8, SUB-9, SUB-10, SUB-11, SUB-12,
        SUB-13, SUB-14, SUB-15, SUB-16, SUB-17, SUB-18, SUB-19. By CMP-24, `derived` is then
        compatible with `base`.
    """
    return check_compatibility(derived, base, shape_vars) is YES


@user_facing
def provably_disjoint(
    a: rx.StructInfo, b: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> bool:
    """True if provably no value is described by both.

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
            ranks = {a.ndim, b.ndim} - {-1}
            devices = {d for d in (a.vdevice, b.vdevice) if d is not None}
            disjoint = max(len(dtypes), len(ranks), len(devices)) > 1
            return disjoint or _unequal(a.get_shape(), b.get_shape())
        case rx.ShapeStructInfo(), rx.ShapeStructInfo():
            return len({a.ndim, b.ndim} - {-1}) > 1 or _unequal(a.values, b.values)
        case rx.PrimStructInfo(), rx.PrimStructInfo():
            return a.dtype != b.dtype or _unequal(sizes_of(a), sizes_of(b))
        case rx.TupleStructInfo(), rx.TupleStructInfo():
            return len(a.fields) != len(b.fields) or any(
                provably_disjoint(x, y, shape_vars) for x, y in zip(a.fields, b.fields, strict=True)
            )
        case DTensorStructInfo(), DTensorStructInfo():
            return not a.is_placed_like(b) or provably_disjoint(
                a.tensor_sinfo, b.tensor_sinfo, shape_vars
            )
        case rx.FuncStructInfo(params=p), rx.FuncStructInfo(params=q):
            if p is None or q is None:
                return p is not q
            return len(p) != len(q)
        case _:
            return True


def explain_disjointness(
    a: rx.StructInfo, b: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> str | None:
    """The reason why `a`, with unknown properties replaced by those of `b`, does not fit `b`."""
    return explain_incompatibility(_completed(a, b), b, shape_vars)


def _completed(a: rx.StructInfo, b: rx.StructInfo) -> rx.StructInfo:
    """`a` with unknown properties replaced by those of `b`."""
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
            return rx.TupleStructInfo(tuple(_completed(x, y) for x, y in zip(p, q, strict=True)))
        case _:
            return a


def placed_like(a: rx.StructInfo, b: rx.StructInfo) -> rx.StructInfo:
    """`a`, with the devices of `b` for tensors whose devices are unknown; `a` if there are none."""
    match a, b:
        case rx.TensorStructInfo(vdevice=None), rx.TensorStructInfo() if b.vdevice is not None:
            return replace(a, vdevice=b.vdevice)
        case rx.TupleStructInfo(fields=p), rx.TupleStructInfo(fields=q) if len(p) == len(q):
            fields = tuple(placed_like(x, y) for x, y in zip(p, q, strict=True))
            return a if all(map(is_, fields, p)) else rx.TupleStructInfo(fields)
        case _:
            return a


def _unequal(a: Sequence[tir.PrimExpr] | None, b: Sequence[tir.PrimExpr] | None) -> bool:
    if not a or not b:
        return False
    return len(a) != len(b) or any(prove_equal(x, y) is False for x, y in zip(a, b, strict=True))


@user_facing
def struct_info_base_check(
    base: rx.StructInfo, derived: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> BaseCheckResult:
    """TVM's form of `check_compatibility`: PASS if `derived` is compatible, FAIL_L2 if possibly.

    If it is not, the result is FAIL_L0 for disjoint struct infos, and else FAIL_L1: a match_cast
    may succeed.
    """
    result = check_compatibility(derived, base, shape_vars)
    if result is YES:
        return BaseCheckResult.PASS
    if result is MAYBE:
        return BaseCheckResult.FAIL_L2
    disjoint = provably_disjoint(base, derived, shape_vars)
    return BaseCheckResult.FAIL_L0 if disjoint else BaseCheckResult.FAIL_L1


@user_facing
def struct_info_lca(
    lhs: rx.StructInfo, rhs: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> rx.StructInfo:
    """The least upper bound ("unification"): the most specific base of both.

    Rule:
        SUB-20, SUB-21, SUB-22, SUB-23, SUB-24, SUB-25, SUB-26, SUB-27.
        `shape_vars` are in scope at both.
    """
    lhs, rhs = rx.as_struct_info(lhs), rx.as_struct_info(rhs)
    if is_base_of(rhs, lhs, shape_vars):
        return rhs
    if is_base_of(lhs, rhs, shape_vars):
        return lhs
    match lhs, rhs:
        case rx.TensorStructInfo(), rx.TensorStructInfo():
            return rx.TensorStructInfo(
                lhs.shape if _same_shape(lhs, rhs) else None,
                lhs.dtype if lhs.dtype == rhs.dtype else VOID,
                lhs.vdevice if lhs.vdevice == rhs.vdevice else None,
                lhs.ndim if lhs.ndim == rhs.ndim else -1,
            )
        case rx.ShapeStructInfo(), rx.ShapeStructInfo():
            return rx.ShapeStructInfo(None, lhs.ndim if lhs.ndim == rhs.ndim else -1)
        case rx.PrimStructInfo(), rx.PrimStructInfo() if lhs.dtype == rhs.dtype:
            return rx.PrimStructInfo(lhs.dtype)
        case rx.TupleStructInfo(fields=p), rx.TupleStructInfo(fields=q) if len(p) == len(q):
            return rx.TupleStructInfo(
                tuple(struct_info_lca(x, y, shape_vars) for x, y in zip(p, q, strict=True))
            )
        case DTensorStructInfo(), DTensorStructInfo() if lhs.is_placed_like(rhs):
            tensor = struct_info_lca(lhs.tensor_sinfo, rhs.tensor_sinfo, shape_vars)
            return replace(lhs, tensor_sinfo=tensor)  # type: ignore[arg-type]
        case rx.FuncStructInfo(), rx.FuncStructInfo():
            return _callable_lub(lhs, rhs, shape_vars) or rx.ObjectStructInfo()
        case _:
            return rx.ObjectStructInfo()


@user_facing
def struct_info_glb(
    lhs: rx.StructInfo, rhs: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> rx.StructInfo | None:
    """The greatest lower bound: the least specific struct info of which both are bases, or None.

    Rule:
        SUB-31, SUB-32, SUB-33, SUB-34, SUB-35. `shape_vars` are in scope at both.
    """
    lhs, rhs = rx.as_struct_info(lhs), rx.as_struct_info(rhs)
    if is_base_of(rhs, lhs, shape_vars):
        return lhs
    if is_base_of(lhs, rhs, shape_vars):
        return rhs
    match lhs, rhs:
        case rx.TensorStructInfo(), rx.TensorStructInfo():
            return _tensor_glb(lhs, rhs)
        case rx.TupleStructInfo(fields=p), rx.TupleStructInfo(fields=q) if len(p) == len(q):
            fields = [struct_info_glb(x, y, shape_vars) for x, y in zip(p, q, strict=True)]
            known = tuple(f for f in fields if f is not None)
            return rx.TupleStructInfo(known) if len(known) == len(fields) else None
        case DTensorStructInfo(), DTensorStructInfo() if lhs.is_placed_like(rhs):
            tensor = struct_info_glb(lhs.tensor_sinfo, rhs.tensor_sinfo, shape_vars)
            return None if tensor is None else replace(lhs, tensor_sinfo=tensor)  # type: ignore[arg-type]
        case rx.FuncStructInfo(), rx.FuncStructInfo():
            return _callable_glb(lhs, rhs, shape_vars)
        case _:
            return None


def _same_shape(a: rx.TensorStructInfo, b: rx.TensorStructInfo) -> bool:
    if a.shape is None or b.shape is None:
        return False
    if a.shape is b.shape:
        return True
    return equal_shapes(a.get_shape(), b.get_shape())


def _tensor_glb(a: rx.TensorStructInfo, b: rx.TensorStructInfo) -> rx.TensorStructInfo | None:
    """SUB-33: a property that one operand leaves unknown is that of the other."""
    if a.shape is not None and b.shape is not None and not _same_shape(a, b):
        return None
    dtypes = {d for d in (a.dtype, b.dtype) if not d.is_void}
    ranks = {n for n in (a.ndim, b.ndim) if n != -1}
    devices = [d for d in (a.vdevice, b.vdevice) if d is not None]
    if len(dtypes) > 1 or len(ranks) > 1 or (len(devices) == 2 and devices[0] != devices[1]):
        return None
    shape = a.shape if a.shape is not None else b.shape
    ndim = ranks.pop() if ranks else -1
    return rx.TensorStructInfo(
        shape, dtypes.pop() if dtypes else VOID, devices[0] if devices else None, ndim
    )


def _callable_lub(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Container[tir.Var]
) -> rx.FuncStructInfo | None:
    """SUB-28, SUB-29, SUB-30 if neither is a base of the other; None means Object."""
    if a.params is None and b.params is None:
        purity = a.purity and b.purity
        return rx.FuncStructInfo(None, rx.ObjectStructInfo(), purity, derive_func=rx.EMPTY_DERIVE)
    return _closure_bound(a, b, scope, upper=True)


def _callable_glb(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Container[tir.Var]
) -> rx.FuncStructInfo | None:
    """SUB-36, SUB-37, SUB-38 if neither is a base of the other."""
    if a.params is None and b.params is None:
        purity = a.purity or b.purity
        if b.derive_func == rx.EMPTY_DERIVE:
            return replace(a, purity=purity)
        return replace(b, purity=purity) if a.derive_func == rx.EMPTY_DERIVE else None
    return _closure_bound(a, b, scope, upper=False)


def _closure_bound(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Container[tir.Var], *, upper: bool
) -> rx.FuncStructInfo | None:
    """The LUB (`upper`) or GLB of Callables with parameters, or None if there is none.

    Callables are contravariant in their parameters, so these get the opposite bound.
    """
    if a.params is None or b.params is None or len(a.params) != len(b.params):
        return None
    a, renamed = _aligned(a, b, scope)
    bound = (*bound_shape_vars(a, scope), *bound_shape_vars(renamed, scope))
    inner = extended(scope, bound)
    assert a.params is not None
    assert renamed.params is not None
    of_result, of_params = struct_info_lca, struct_info_glb
    if not upper:
        of_result, of_params = of_params, of_result  # type: ignore[assignment]
    ret = of_result(a.ret, renamed.ret, inner)
    params = [of_params(p, q, inner) for p, q in zip(a.params, renamed.params, strict=True)]
    if ret is None or any(param is None for param in params):
        return None
    purity = (a.purity and b.purity) if upper else (a.purity or b.purity)
    result = rx.FuncStructInfo(params, ret, purity)  # type: ignore[arg-type]
    if any(var in bound for var in free_shape_vars(result, scope)):
        return None
    pairs = [(result, a), (result, b)] if upper else [(a, result), (b, result)]
    sound = not bound or all(is_base_of(base, derived, scope) for base, derived in pairs)
    return result if sound else None


def _aligned(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Container[tir.Var]
) -> tuple[rx.FuncStructInfo, rx.FuncStructInfo]:
    """`a` and `b`, with the bound variables of `b` renamed to those of `a` at the same positions.

    A variable is paired with the first one that it meets and that has no partner yet, so that the
    result does not depend on the order of the operands (SUB-20).
    """
    a = alpha_rename_clashes(a, b, scope)
    renamed = alpha_rename(b, scope)
    assert a.params is not None
    assert renamed.params is not None
    unpaired = set(bound_shape_vars(a, scope))
    table: dict[tir.Var, tir.PrimExpr] = {}
    for var, image in matched_pairs(renamed.params, a.params, scope):
        if image in unpaired and var not in table:
            table[var] = image
            unpaired.discard(image)
    return a, substitute_info(renamed, table)
