"""Hypothesis strategies for StructInfo, and short spellings of struct infos for tests."""

from collections.abc import Sequence

from hypothesis import strategies as st

from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir

VARIABLES = N, M, K = tuple(tir.Var(name, "int64") for name in "nmk")
SHAPES = S, T = (
    rx.Var("s", rx.ShapeStructInfo(None, -1)),
    rx.Var("t", rx.ShapeStructInfo(None, 2)),
)
N_BY_4 = rx.Var("h", rx.ShapeStructInfo((N, 4)))
FIRST = rx.EnvFunc("first", lambda call, context: rx.ObjectStructInfo())
DERIVATIONS = (rx.EMPTY_DERIVE, rx.DEFAULT_DERIVE, FIRST)

Object = rx.ObjectStructInfo()


def tensor(*dims: object, dtype: str = "float32") -> rx.TensorStructInfo:
    return rx.TensorStructInfo(dims, DataType(dtype))  # type: ignore[arg-type]


def rank(ndim: int, dtype: str = "float32") -> rx.TensorStructInfo:
    return rx.TensorStructInfo(None, DataType(dtype), ndim=ndim)


def by_var(shape: rx.Var, dtype: str = "float32", ndim: int | None = None) -> rx.TensorStructInfo:
    return rx.TensorStructInfo(shape, DataType(dtype), ndim=ndim)  # type: ignore[arg-type]


def ranked(ndim: int) -> rx.ShapeStructInfo:
    return rx.ShapeStructInfo(None, ndim)


def shape(*members: object) -> rx.ShapeStructInfo:
    return rx.ShapeStructInfo(members)  # type: ignore[arg-type]


def prim(value: object = None, dtype: str = "int64") -> rx.PrimStructInfo:
    return rx.PrimStructInfo(dtype, value)  # type: ignore[arg-type]


def tuple_of(*fields: rx.StructInfo) -> rx.TupleStructInfo:
    return rx.TupleStructInfo(fields)


def func(*params: rx.StructInfo, ret: rx.StructInfo, pure: bool = True) -> rx.FuncStructInfo:
    return rx.FuncStructInfo(params, ret, pure)


def packed(derive: rx.EnvFunc = rx.EMPTY_DERIVE, pure: bool = False) -> rx.FuncStructInfo:
    return rx.FuncStructInfo.opaque_func(derive_func=derive, purity=pure)


@st.composite
def sizes(draw: st.DrawFn, variables: Sequence[tir.Var] = VARIABLES) -> tir.PrimExpr:
    """A literal, a variable or a sum; some of them equal without being the same."""
    literal = tir.IntImm("int64", draw(st.integers(1, 3)))
    kind = draw(st.integers(0, 5)) if variables else 0
    if kind < 2:
        return literal
    var = draw(st.sampled_from(list(variables)))
    if kind < 4:
        return var
    return (tir.Add(var, literal), tir.Add(literal, var), tir.Add(var, var), tir.Mul(var, literal))[
        draw(st.integers(0, 3))
    ]


@st.composite
def sinfos(
    draw: st.DrawFn,
    depth: int = 2,
    *,
    functions: bool = True,
    variables: Sequence[tir.Var] = VARIABLES,
) -> rx.StructInfo:
    """Infos of all kinds over `variables`; small, so that related ones come up often."""
    kind = draw(st.integers(0, 9 if depth else 6))
    dims = st.lists(sizes(variables), max_size=2)
    ndim = st.integers(-1, 2)
    dtypes = st.sampled_from([DataType("float32"), DataType("float32"), DataType("int64"), VOID])
    match kind:
        case 0:
            return Object
        case 1:
            value = draw(st.one_of(st.none(), sizes(variables)))
            return prim(value) if draw(st.integers(0, 3)) else prim(None, "bool")
        case 2:
            return rx.ShapeStructInfo(draw(dims))  # type: ignore[arg-type]
        case 3:
            return rx.ShapeStructInfo(None, draw(ndim))
        case 4 | 5:
            known = draw(st.one_of(dims, st.sampled_from(SHAPES)))
            return rx.TensorStructInfo(known, draw(dtypes))  # type: ignore[arg-type]
        case 6:
            return rx.TensorStructInfo(None, draw(dtypes), ndim=draw(ndim))
        case 7 | 8 if kind == 7 or not functions:
            inner = sinfos(depth - 1, functions=functions, variables=variables)
            return rx.TupleStructInfo(tuple(draw(st.lists(inner, max_size=2))))
        case _ if functions:
            pure = draw(st.booleans())
            if draw(st.integers(0, 3)) == 0:
                return packed(draw(st.sampled_from(DERIVATIONS)), pure)
            inner = sinfos(depth - 1, functions=functions, variables=variables)
            params = tuple(draw(st.lists(inner, max_size=2)))
            return rx.FuncStructInfo(params, draw(inner), pure)
        case _:
            return Object


@st.composite
def weakened(draw: st.DrawFn, sinfo: rx.StructInfo) -> rx.StructInfo:
    """A struct info above `sinfo`, one that `<<:` should find."""
    choice = draw(st.integers(0, 3))
    match sinfo:
        case _ if choice == 0:
            return sinfo
        case rx.TensorStructInfo(dtype=dtype, ndim=ndim):
            return (
                rx.TensorStructInfo(None, dtype, ndim=ndim),
                rx.TensorStructInfo(sinfo.shape, VOID, ndim=ndim),
                rx.TensorStructInfo(None, dtype, ndim=-1),
            )[choice - 1]
        case rx.ShapeStructInfo(ndim=ndim):
            return rx.ShapeStructInfo(None, ndim if choice == 1 else -1)
        case rx.PrimStructInfo(dtype=dtype):
            return rx.PrimStructInfo(dtype)
        case rx.TupleStructInfo(fields=fields):
            return rx.TupleStructInfo(tuple(draw(weakened(f)) for f in fields))
        case rx.FuncStructInfo(params=None):
            return packed(rx.EMPTY_DERIVE, False)
        case rx.FuncStructInfo(params=params, ret=ret):
            return rx.FuncStructInfo(params, draw(weakened(ret)), sinfo.purity and choice == 1)
        case _:
            return Object
