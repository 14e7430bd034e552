"""What a program consists of: kinds of expressions, datatypes, and how often operators occur."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from enum import IntEnum

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.equality.structural import structural_hash
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.scopes import Scopes, is_atom, same_scope, scope_roots
from relaxpy.ir.relay.analysis.variables import free_vars
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.op.registry import Op
from relaxpy.ir.relay.ty import TensorType, Type


class Feature(IntEnum):
    """A kind of expression; `fGraph` is a shared one, `fLetRec` a let of a recursive function."""

    fVar = 0  # noqa: N815
    fGlobalVar = 1  # noqa: N815
    fConstant = 2  # noqa: N815
    fTuple = 3  # noqa: N815
    fTupleGetItem = 4  # noqa: N815
    fFunction = 5  # noqa: N815
    fOp = 6  # noqa: N815
    fCall = 7  # noqa: N815
    fLet = 8  # noqa: N815
    fIf = 9  # noqa: N815
    fRefCreate = 10  # noqa: N815
    fRefRead = 11  # noqa: N815
    fRefWrite = 12  # noqa: N815
    fConstructor = 13  # noqa: N815
    fMatch = 14  # noqa: N815
    fGraph = 15  # noqa: N815
    fLetRec = 16  # noqa: N815


@user_facing
def detect_feature(
    a: rl.RelayExpr | RelayModule, b: rl.RelayExpr | RelayModule | None = None
) -> set[Feature]:
    """Return the features of an expression, of a module, or of both, given in any order.

    Errors:
        MisuseError (also TypeError): an argument is neither an expression nor a module.
    """
    found: set[Feature] = set()
    for part in (a,) if b is None else (a, b):
        match part:
            case RelayModule():
                for function in part.functions.values():
                    found |= _features(function)
            case rl.RelayExpr():
                found |= _features(part)
            case _:
                raise MisuseError(
                    f"expected a Relay expression or module, found {part!r:.60}", about=part
                )
    return found


def _features(root: rl.RelayExpr) -> set[Feature]:
    found = {
        Feature[f"f{type(node).__name__}"]
        for node in walk(root)
        if f"f{type(node).__name__}" in Feature.__members__
    }
    scopes = Scopes(root)
    if any(count > 1 for count in scopes.uses.values()):
        found.add(Feature.fGraph)
    recursive = (let for let in scopes.lets if isinstance(let.value, rl.Function))
    if any(let.var in free_vars(let.value) for let in recursive):
        found.add(Feature.fLetRec)
    return found


def all_dtypes(expr: Node) -> set[str]:
    """Return the datatypes of the tensors in an expression with types."""
    types = [node.checked_type_ for node in walk(expr) if isinstance(node, rl.RelayExpr)]
    given = [node for node in walk(expr) if isinstance(node, Type)]
    inside = (part for ty in (*types, *given) if ty is not None for part in walk(ty))
    return {str(ty.dtype) for ty in inside if isinstance(ty, TensorType)}


def _calls(program: rl.RelayExpr | RelayModule) -> Iterator[rl.Call]:
    roots = program.functions.values() if isinstance(program, RelayModule) else (program,)
    for root in roots:
        yield from (node for node in walk(root) if isinstance(node, rl.Call))


def list_op_freqs(mod: RelayModule | rl.RelayExpr) -> dict[str, int]:
    """Return how often a program calls each operator."""
    return dict(Counter(call.op.name for call in _calls(mod) if isinstance(call.op, Op)))


def count_layers(expr: rl.RelayExpr, valid_ops: Collection[str]) -> int:
    """Return the largest number of calls of some operators on a path through an expression."""
    depths: dict[int, int] = {}
    scopes = Scopes(expr)
    values = {let.var: let.value for let in scopes.lets}
    for node in scopes.nodes:
        inside = (*same_scope(node), *scope_roots(node))
        operands = [values.get(o, o) if isinstance(o, rl.Var) else o for o in inside]
        deepest = max((depths.get(id(o), 0) for o in operands), default=0)
        counts = isinstance(node, rl.Call) and isinstance(node.op, Op) and node.op.name in valid_ops
        depths[id(node)] = deepest + counts
    return 0 if is_atom(expr) else depths[id(expr)]


def get_total_mac_number(expr: rl.RelayExpr) -> int:
    """Return the number of multiplications with additions in the products of a typed expression.

    Counted are `nn.dense`, `nn.matmul`, `nn.batch_matmul`, convolutions and transposed ones.

    Errors:
        MisuseError: an operand of one of these has no type, or dimensions that are not known.
    """
    return sum(_macs(call) for call in _calls(expr))


def _macs(call: rl.Call) -> int:
    name = call.op.name if isinstance(call.op, Op) else ""
    if name in ("nn.dense", "nn.matmul", "nn.batch_matmul"):
        shape = _shape(call.args[0])
        return math.prod(_shape(call)) * shape[-2 if call.attrs.get("transpose_a") else -1]
    if not name.startswith("nn.conv") or len(call.args) != 2 or "kernel_layout" not in call.attrs:
        return 0
    data, weight = map(_shape, call.args)
    transposed = name.endswith("_transpose")
    axis = str(call.attrs["kernel_layout"]).index("I" if transposed else "O")
    return math.prod(data if transposed else _shape(call)) * math.prod(weight) // weight[axis]


def _shape(expr: rl.RelayExpr) -> list[int]:
    ty = expr.checked_type
    if isinstance(ty, TensorType) and isinstance(ty.shape, tuple):
        known = [dim for dim in ty.shape if isinstance(dim, int)]
        if len(known) == len(ty.shape):
            return known
    raise MisuseError(f"the dimensions of {ty} are not known", about=expr)


def extract_fused_functions(mod: RelayModule) -> dict[int, rl.Function]:
    """Return the functions with the attribute `Primitive` in a module, by their structural hash."""
    return {
        structural_hash(node): node
        for function in mod.functions.values()
        for node in walk(function)
        if isinstance(node, rl.Function) and "Primitive" in node.attrs
    }
