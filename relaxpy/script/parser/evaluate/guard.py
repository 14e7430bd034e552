"""The limits on what a text may access, and on the work that parsing it causes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typing_extensions import override

from relaxpy.errors import ParseError
from relaxpy.ir.core.budget import MAX_CHARACTERS, MAX_STEPS, Budget
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import children
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import OpDef
from relaxpy.ir.ops.python_syntax import TensorDtype
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations.shape_vars import sizes_of
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferRegion
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.script.language.annotations import Annotation
from relaxpy.script.language.records import BufferSpec
from relaxpy.script.language.wording import offers
from relaxpy.script.parser.evaluate import user_calls
from relaxpy.script.parser.source import BUILTINS, FromText, ModuleRef
from relaxpy.support.entry import argument_node

if TYPE_CHECKING:
    from relaxpy.script.parser.evaluate.evaluator import Evaluator

MAX_BITS = 4096
MAX_ITEMS = 100_000
PER_CALL = 5  # steps for a call or a constant that is derived and bound
PER_LAMBDA = 20  # steps for a call of a function of the text, which opens a scope
PER_FIELD = 100  # steps for a field of its result
PER_OPERAND = 10  # steps for a member of a Python value that is an argument of an operator
CHARACTERS_PER_STEP = 16  # of a string that is an argument
MAX_KEYS = 10_000  # of a dict or set, other than strings
MAX_COLLISIONS = 16  # keys of one hash
MAX_NESTED = 90  # iterators inside each other, which Python's own code consumes
#: Values of exactly these types have no members to count and cannot be called.
_PLAIN: frozenset[type] = frozenset(
    (
        *(bool, int, float, type(None), tir.Var, tir.SizeVar),
        *(rx.Var, rx.DataflowVar, rx.Call, rx.Constant, rx.ShapeExpr, rx.Tuple),
    )
)
#: Results of exactly these types are always small.
_SMALL: frozenset[type] = frozenset(
    (
        *(bool, float, type(None), type, ModuleType, FunctionType, OpDef),
        *(rx.Var, rx.DataflowVar, rx.GlobalVar, tir.Var, tir.SizeVar, Buffer),
    )
)
_CONTAINERS = frozenset((range, str, list, tuple, set, dict))
_OUT_OF_REACH = "text can call only functions of I, R, T and extra_vars"
_FORMAT = re.compile(r"[<>=^+\- 0-9.,_a-zA-Z]{0,8}")

#: The attributes that text may use, by the kind of value.
ATTRIBUTES: Mapping[type, Collection[str]] = {
    DataType: ("bits", "lanes", "type_code", "with_lanes", "element", "itemsize"),
    PrimExpr: ("dtype", "astype", "equal"),
    Buffer: (
        *("data", "dtype", "elem_offset", "name", "ndim", "scope", "shape", "strides", "vload"),
        *("vstore", "access_ptr", "offset_of"),
    ),
    BufferRegion: ("buffer", "region"),
    Range: ("min", "extent"),
    IterVar: ("var", "dom"),
    TensorDtype: ("bits", "lanes", "type_code"),
    rx.Expr: ("struct_info", "astype", "fields"),
    rx.TensorStructInfo: ("shape", "dtype", "ndim"),
    rx.ShapeStructInfo: ("values", "ndim"),
    rx.ShapeExpr: ("values",),
    rx.PrimStructInfo: ("dtype", "value"),
    rx.TupleStructInfo: ("fields",),
    rx.FuncStructInfo: ("params", "ret", "purity"),
    Attrs: ("get", "keys", "values", "items"),
    IRModule: (),
}


class Guard:
    """Allows everything: the text is a function of the user's program."""

    counts = False

    def name(self, name: str, node: ast.expr, at: Evaluator) -> None:
        """Check that a name may be used."""

    def attribute(self, owner: object, node: ast.Attribute, at: Evaluator) -> object:
        """Attribute `node.attr` of `owner`, if it may be used."""
        return user_calls.attribute(owner, node.attr)

    def call(
        self,
        function: object,
        args: list[Any],
        kwargs: dict[str, Any],
        node: ast.Call,
        at: Evaluator,
    ) -> None:
        """Check that a call is allowed; iterators among the arguments are replaced."""

    def subscript(self, owner: object, index: object, node: ast.Subscript, at: Evaluator) -> None:
        """Check that a value may be indexed."""

    def binary(self, sign: str, left: object, right: object, node: ast.expr, at: Evaluator) -> None:
        """Check that the result of an operation is small enough."""

    def result(self, value: object, node: ast.expr, at: Evaluator) -> None:
        """Check that a new value is small enough."""

    def keys(self, keys: list[Any], node: ast.expr, at: Evaluator) -> None:
        """Check that these may be the members of a set, or the keys of a dict."""

    def members(self, members: Iterable[object], node: ast.expr, at: Evaluator) -> Iterable[object]:
        """The members of a value, counted as they are consumed."""
        return members

    def step(self, node: ast.expr, at: Evaluator, size: int = 1) -> None:
        """Count steps of work."""

    def derivation(self, expr: rx.Expr, node: ast.expr, at: Evaluator) -> None:
        """Check that the struct info of a call, tuple or constant may be inferred."""

    def format(self, value: object, spec: str, node: ast.expr, at: Evaluator) -> None:
        """Check that a value may be formatted in this way."""


OPEN = Guard()


class TextGuard(Guard):
    """Restricts text that may be hostile: it can call functions of `namespaces`, and `functions`.

    Built-in functions are allowed, too. The size of every value that is created is counted as
    steps, whose number is bounded.
    """

    counts = True

    def __init__(self, namespaces: Iterable[object], functions: Iterable[object]) -> None:
        self._spaces: dict[int, object] = {id(space): space for space in namespaces}
        self._members_read: dict[tuple[int, str], object] = {}  # members of namespaces
        # The objects are stored with their ids, so that no id is used again.
        self._callable: dict[int, object] = {id(f): f for f in (*BUILTINS.values(), *functions)}
        self._weights: dict[PrimExpr, int] = {}
        self._depths: dict[int, tuple[Iterator[object], int]] = {}  # of iterators, kept alive
        self._depth = 0  # of the result of the last call, if that is an iterator
        self._budget = Budget()

    @override
    def name(self, name: str, node: ast.expr, at: Evaluator) -> None:
        if name.startswith("__"):
            raise at.error(
                node, f"names beginning with two underscores are refused in text: {name}"
            )

    @override
    def attribute(self, owner: object, node: ast.Attribute, at: Evaluator) -> object:
        name = node.attr
        if isinstance(owner, ModuleRef) and name in owner.__functions__:
            return owner.__getattr__(name)
        if name.startswith("_"):
            raise at.error(
                node, f"attributes beginning with an underscore are refused in text: {name}"
            )
        if id(owner) in self._spaces:
            return self._member(owner, name, node, at)
        for kind, names in ATTRIBUTES.items():
            if isinstance(owner, kind) and name in names:
                member = user_calls.attribute(owner, name)
                if callable(member) and not isinstance(member, Node):
                    self._callable[id(member)] = member
                return member
        if isinstance(owner, ModuleRef):  # all of its names are defined by the program
            return user_calls.attribute(owner, name)
        if not hasattr(owner, name):
            raise at.unknown_attribute(owner, node)
        raise at.error(
            node,
            f"attribute {name!r} cannot be used in text",
            hint="only those of I, R, T and of values of the program can",
        )

    def _member(self, space: object, name: str, node: ast.Attribute, at: Evaluator) -> object:
        key = id(space), name
        is_known = key in self._members_read
        if not is_known and name not in getattr(space, "__all__", ()) and not offers(space, name):
            raise at.unknown_attribute(space, node)
        member = user_calls.attribute(space, name)
        if is_known and self._members_read[key] is member:
            return member
        self._members_read[key] = member
        if hasattr(member, "__all__") or hasattr(member, "_public_names"):
            self._spaces[id(member)] = member
        if callable(member):
            self._callable[id(member)] = member
        return member

    @override
    def call(
        self,
        function: object,
        args: list[Any],
        kwargs: dict[str, Any],
        node: ast.Call,
        at: Evaluator,
    ) -> None:
        for value in (*args, *kwargs.values()):
            # T.index_map and other functions call their arguments.
            if type(value) not in _PLAIN and self._is_foreign(value):
                raise at.error(argument_node(node, args, kwargs, value) or node, _OUT_OF_REACH)
        if not callable(function):
            return
        if not isinstance(function, (rx.Expr, FromText)) and id(function) not in self._callable:
            raise at.error(node.func, _OUT_OF_REACH)
        if isinstance(function, FromText):
            self.step(node, at, PER_LAMBDA)
        if function is round:
            for digits in (*args[1:], *kwargs.values()):
                if isinstance(digits, int) and abs(digits) > MAX_BITS:
                    raise at.error(node, "rounding to this number of digits is refused in text")
        if function is range:
            return
        times = 1
        if isinstance(function, OpDef):
            times = PER_OPERAND
            self.step(node, at, sum(map(_work_on, (*args, *kwargs.values()))))
        self._depth = 1
        for k, arg in enumerate(args):
            args[k] = self._counted_argument(arg, node, at, times)
        for name, value in kwargs.items():
            kwargs[name] = self._counted_argument(value, node, at, times)
        if (function is set or function is dict) and args and isinstance(args[0], Iterable):
            args[0] = list(args[0]) if not isinstance(args[0], dict) else args[0]
            pairs = function is dict and isinstance(args[0], list)
            keys = [k[0] for k in args[0] if isinstance(k, tuple) and k] if pairs else [*args[0]]
            self.keys(keys, node, at)

    def _counted_argument(self, value: Any, node: ast.expr, at: Evaluator, times: int = 1) -> Any:
        """Count the members of an argument, at every depth, or those of an iterator as it runs."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind not in _CONTAINERS and isinstance(value, Iterator):
            _, depth = self._depths.get(id(value), (value, 1))
            self._depth = max(self._depth, 1 + depth)
            if depth > MAX_NESTED:
                raise at.error(node, f"iterators nested more than {MAX_NESTED} deep are refused")
            return self.members(value, node, at)
        self.step(node, at, times * _size(value))
        return value

    def _is_foreign(self, value: object) -> bool:
        """True if `value` is a function that text cannot call, such as an IRModule."""
        kind = type(value)
        if not callable(value) or isinstance(value, FromText):
            return False
        if isinstance(value, type) and issubclass(value, np.generic):  # a datatype
            return False
        data = kind.__module__.startswith("relaxpy.") and not isinstance(value, IRModule)
        return not data and id(value) not in self._callable

    @override
    def subscript(self, owner: object, index: object, node: ast.Subscript, at: Evaluator) -> None:
        self._counted_argument(index, node, at)
        if isinstance(owner, type) and issubclass(owner, (Annotation, BufferSpec)):
            return
        if owner is not Annotated and (inspect.isclass(owner) or inspect.ismodule(owner)):
            raise at.error(node, "only values can be indexed in text")

    @override
    def binary(self, sign: str, left: object, right: object, node: ast.expr, at: Evaluator) -> None:
        if isinstance(left, str) and sign == "%":
            raise at.error(node, "formatting with % is refused in text", hint="use an f-string")
        for operand, other in ((left, right), (right, left)):
            times = max(0, other) if sign == "*" and isinstance(other, int) else 1
            self.step(node, at, _size(operand) * times)
        if isinstance(left, int) and isinstance(right, int):
            bits = max(left.bit_length(), right.bit_length())
            if sign == "*":
                bits = left.bit_length() + right.bit_length()
            elif sign == "**":
                bits = left.bit_length() * max(1, right)
            elif sign == "<<":
                bits = left.bit_length() + max(0, right)
            self._check_bits(bits, node, at)

    def _check_bits(self, bits: int, node: ast.expr, at: Evaluator) -> None:
        if bits > MAX_BITS:
            raise at.error(node, f"an integer of more than {MAX_BITS} bits is refused in text")

    @override
    def result(self, value: object, node: ast.expr, at: Evaluator) -> None:
        # A shared member is printed once for each use, so it counts each time.
        if type(value) in _SMALL:
            return
        if isinstance(value, PrimExpr):
            self._check_weight(value, node, at)
        elif isinstance(value, (list, tuple, set, dict)):
            size, characters, worklist = 0, 0, [value]
            while worklist:
                container = worklist.pop()
                size += len(container) or 1
                if size > MAX_ITEMS:
                    raise at.error(node, f"more than {MAX_ITEMS} members are refused in text")
                values = container.values() if isinstance(container, dict) else ()
                members = (*container, *values)
                worklist += [v for v in members if isinstance(v, (list, tuple, set, dict))]
                characters += sum(len(v) for v in members if isinstance(v, str))
            if characters > MAX_CHARACTERS:
                raise at.error(node, f"more than {MAX_CHARACTERS} characters are refused in text")
            self.step(node, at, size)
            if isinstance(value, (set, dict)):
                self.keys([*value], node, at)
        elif isinstance(value, str):
            if not isinstance(node, ast.Constant):  # those are part of the text
                self.step(node, at, len(value))
        elif isinstance(value, int):
            self._check_bits(value.bit_length(), node, at)
        elif isinstance(value, rx.Call):
            sinfo = value.struct_info or rx.ObjectStructInfo()
            fields = sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else ()
            self.step(node, at, sinfo.node_count + PER_FIELD * len(fields))
            for derived in fields or (sinfo,):
                for dimension in sizes_of(derived):
                    self._check_weight(dimension, node, at)
        elif isinstance(value, (Annotation, rx.StructInfo)):
            self.step(node, at, value.node_count)
        elif isinstance(value, slice):
            if any(isinstance(bound, slice) for bound in (value.start, value.stop, value.step)):
                raise at.error(node, "the bounds of a slice are numbers, found a slice")
        elif isinstance(value, Iterator):
            self._depths.setdefault(id(value), (value, self._depth))

    def _check_weight(self, value: PrimExpr, node: ast.expr, at: Evaluator) -> None:
        if value.height and self._weight(value) > MAX_ITEMS:
            raise at.error(node, f"an expression of more than {MAX_ITEMS} nodes is refused in text")

    def _weight(self, value: PrimExpr) -> int:
        weights = self._weights
        if value in weights:
            return weights[value]
        worklist = [value]
        while worklist:
            operands = [c for c in children(worklist[-1]) if isinstance(c, PrimExpr)]
            unknown = [operand for operand in operands if operand not in weights]
            worklist += unknown
            if not unknown:
                weights[worklist.pop()] = 1 + sum(weights[operand] for operand in operands)
        return weights[value]

    @override
    def keys(self, keys: list[Any], node: ast.expr, at: Evaluator) -> None:
        # Hashes of strings are random; numbers can be chosen so that their hashes collide.
        by_hash: dict[int, list[Any]] = {}
        for key in keys:
            if isinstance(key, str):
                continue
            colliding = by_hash.setdefault(hash(key), [])
            if key not in colliding:
                colliding.append(key)
            if len(colliding) > MAX_COLLISIONS:
                raise at.error(node, f"more than {MAX_COLLISIONS} keys of one hash are refused")
            if len(by_hash) > MAX_KEYS:
                raise at.error(node, f"more than {MAX_KEYS} keys are refused in text")

    @override
    def members(self, members: Iterable[object], node: ast.expr, at: Evaluator) -> Iterable[object]:
        return self._counted(members, node, at)

    def _counted(
        self, members: Iterable[object], node: ast.expr, at: Evaluator
    ) -> Iterator[object]:
        for member in members:
            self.step(node, at)
            yield member

    @override
    def step(self, node: ast.expr, at: Evaluator, size: int = 1) -> None:
        try:
            self._budget.spend_steps(size)
        except ParseError as error:
            raise error.located(at.span(node)) from None

    @override
    def derivation(self, expr: rx.Expr, node: ast.expr, at: Evaluator) -> None:
        operands = (expr.op, *expr.args) if isinstance(expr, rx.Call) else (expr,)
        self.step(node, at, PER_CALL + sum(map(_work_on, operands)))

    @override
    def format(self, value: object, spec: str, node: ast.expr, at: Evaluator) -> None:
        widths = [int(digits) for digits in re.findall(r"\d+", spec)]
        if not _FORMAT.fullmatch(spec) or any(width > 100 for width in widths):
            raise at.error(node, f"the format {spec!r} is refused in text")
        if not isinstance(value, (bool, int, float, str, PrimExpr)):
            raise at.error(node, "only numbers, strings and scalar expressions go into an f-string")


def _work_on(operand: object) -> int:
    """The steps that the derivation of a call takes for an operand or list of dimensions."""
    sinfo, size = getattr(operand, "struct_info", None), 0
    if type(sinfo) is rx.TensorStructInfo and sinfo.ndim < 10:
        return 1 + sinfo.ndim
    if isinstance(sinfo, rx.StructInfo):
        size = sinfo.node_count
    elif isinstance(operand, (list, tuple)) and operand:
        size = len(operand) if isinstance(operand[0], (int, PrimExpr)) else 0
    if isinstance(sinfo, (rx.TupleStructInfo, rx.FuncStructInfo)):
        return size
    return size + size**3 // 1000  # each dimension may be compared with all others


def _size(value: object) -> int:
    """Count the members of a Python value, including nested ones."""
    size, worklist = 0, [value]
    while worklist and size <= MAX_STEPS:
        item = worklist.pop()
        if type(item) in _PLAIN:
            continue
        if isinstance(item, range):
            step = abs(item.step)
            size += max(0, (abs(item.stop - item.start) + step - 1) // step)
        elif isinstance(item, str):
            size += -(-len(item) // CHARACTERS_PER_STEP)
        elif isinstance(item, (list, tuple, set, dict)):
            size += len(item)
            if isinstance(item, dict):
                worklist += item.values()
            worklist += item
    return size
