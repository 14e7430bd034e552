"""The functions of the module that a builder builds: each under its own name, equal ones once.

Names are unique, and those of public functions are their symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, MutableMapping
from typing import TypeAlias

from typing_extensions import override

from relaxpy.errors import TransformError, unexpected
from relaxpy.ir.equality.structural import function_key, structural_equal
from relaxpy.ir.link import free_name, link_function
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.infer import function_sinfo, signature_of
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes import BaseFunc, Function, GlobalVar, ObjectStructInfo, StructInfo
from relaxpy.ir.tir.expr import FloatImm, IntImm, PrimExpr
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Stmt


def as_gvar(gvar: object) -> GlobalVar:
    """`gvar`, if it is a GlobalVar.

    Errors:
        MisuseError (also TypeError): it is something else.
    """
    if not isinstance(gvar, GlobalVar):
        raise unexpected(gvar, "a function is known by its GlobalVar")
    return gvar


_Look: TypeAlias = tuple[object, ...]


def _look(func: BaseFunc) -> _Look:
    """A cheap hash key that equal functions share: their arrays, or callees and sizes of blocks.

    Kernels of operators on the same arrays differ in the value that their innermost statement has,
    those of one operator on an array and a literal in that.
    """
    kind = type(func)
    if not isinstance(func, (Function, PrimFunc)):
        return (kind,)
    names = frozenset(func.attrs)
    if isinstance(func, Function):
        sizes = (len(block.bindings) for block in func.body.blocks)
        return kind, names, len(func.params), mentioned_globals(func), *sizes
    stmt: Stmt | None = func.body
    while inner := getattr(stmt, "body", None) or getattr(stmt, "block", None):
        stmt = inner
    arrays = (func.buffer_of(param) for param in func.params)
    shapes = (a and (a.dtype, *map(_known, a.shape)) for a in arrays)
    value = getattr(stmt, "value", None)
    operands = () if value is None else value._children()
    literals = (x for x in operands if isinstance(x, IntImm | FloatImm))
    return kind, names, type(stmt), type(value), *literals, *shapes


def _known(size: PrimExpr) -> int | None:
    return size.value if isinstance(size, IntImm) else None


def _have_one_signature(a: BaseFunc, b: BaseFunc) -> bool:
    """True if callers see the same result of two equal functions, whose annotations may differ."""
    return not isinstance(a, Function) or known_signature(a) == known_signature(b)


class FunctionTable:
    """The functions of `mod`, with an index of them by a cheap hash key.

    Those with the same key are indexed by structural key when one of them is looked up, since that
    takes a visit of the whole function. `declare` receives the name and the signature of each
    function that is stored. The names in `claimed` are those of functions that are under
    construction: others get a number.
    """

    def __init__(self, mod: IRModule, declare: Callable[[str, StructInfo], None]) -> None:
        self.mod = mod
        self.claimed: set[str] = set()
        self._declare = declare
        self._by_key: dict[_Look, dict[object, list[tuple[GlobalVar, BaseFunc]]]] = {}
        self._unindexed: dict[_Look, list[tuple[GlobalVar, BaseFunc]]] | None = None
        self._numbers: dict[str, int] = {}

    def set(self, gvar: GlobalVar, func: BaseFunc) -> None:
        """Store `func` as `gvar`, instead of a function that is there already."""
        self.mod[gvar] = func
        if self._unindexed is not None:
            self._unindexed.setdefault(_look(func), []).append((gvar, func))
        self._declare(gvar.name_hint, known_signature(func))

    def add(self, func: BaseFunc, name: str) -> GlobalVar:
        """Store `func`, unless there is an equal one, under a name that is not taken.

        A function that is called `name`, and a kernel that is called `main`, as each one that was
        scheduled alone, gets that name.
        """
        symbol = func.attrs.get("global_symbol") if isinstance(func, Function | PrimFunc) else None
        follows = symbol == name or (isinstance(func, PrimFunc) and symbol == "main")
        gvar = self._equal_to(func.with_attr("global_symbol", name) if follows else func)
        if gvar is None:
            gvar = GlobalVar(self.free_name(name))
            self.set(gvar, func.with_attr("global_symbol", gvar.name_hint) if follows else func)
        return gvar

    def add_with_callees(self, func: BaseFunc, symbol: str, reserved: Collection[str]) -> GlobalVar:
        """Store a public function, unless there is an equal one, and the functions it calls.

        Its name is `symbol`, followed by a number if the name is taken, claimed or reserved.
        """
        equal = self._equal_to(func)
        if equal is not None:
            return equal
        present = self.mod.functions_by_name
        taken = {*present, *reserved, *self.claimed}
        name_in_module, functions = link_function(func, symbol, present, taken)
        for name, function in functions.items():
            if name not in self.mod:
                self.set(GlobalVar(name), function)
        return self.mod.get_global_var(name_in_module)

    def _equal_to(self, func: BaseFunc) -> GlobalVar | None:
        """The first, by name, of the structurally equal functions; None if there is none."""
        if self._unindexed is None:
            self._unindexed = {}
            for item in self.mod.items():
                self._unindexed.setdefault(_look(item[1]), []).append(item)
        look = _look(func)
        index = self._by_key.setdefault(look, {})
        for item in self._unindexed.pop(look, ()):
            index.setdefault(function_key(item[1]), []).append(item)
        candidates = index.get(function_key(func), ()) if index else ()
        equal = (
            v
            for v, stored in candidates
            if self.mod.find_function(v.name_hint) is stored and _have_one_signature(stored, func)
        )
        return min(equal, key=lambda gvar: gvar.name_hint, default=None)

    def has(self, gvar: GlobalVar, func: BaseFunc) -> bool:
        """True if `gvar` is `func` or a structurally equal function."""
        stored = self.mod.find_function(gvar.name_hint)
        if stored is None or stored is func:
            return stored is func
        return structural_equal(stored, func) and _have_one_signature(stored, func)

    def free_name(self, prefix: str) -> str:
        """`prefix`, followed by the first number that makes a name the module does not have."""
        name, count = prefix, self._numbers.get(prefix, 0)
        while name in self.mod or name in self.claimed:
            count += 1
            name = f"{prefix}{count}"
        self._numbers[prefix] = max(count - 1, 0)
        return name


def normalize_global_names(mod: IRModule) -> IRModule:
    """The module with the symbols of public functions as their names; itself if they are already.

    A private function whose name is the symbol of a public one is renamed.

    Errors:
        TransformError: two public functions have the same symbol.
    """
    symbols = {var: func.attrs.get("global_symbol") for var, func in mod.items()}
    public = {var: str(symbol) for var, symbol in symbols.items() if symbol is not None}
    taken: set[str] = set()
    for name in public.values():
        if name in taken:
            raise TransformError(f"two public functions are called {name}", rule="SC-9")
        taken.add(name)
    names: dict[GlobalVar | str, GlobalVar | str] = {}
    for var in mod:
        name = public.get(var) or free_name(var.name_hint, taken)
        taken.add(name)
        if name != var.name_hint:
            names[var] = name
    return mod.replace_global_vars(names) if names else mod


def declared_signature(func: BaseFunc) -> StructInfo:
    """The declared signature, which callers see before the body is derived (DER-1)."""
    if isinstance(func, Function):
        return signature_of(func)
    assert func.struct_info is not None
    return func.struct_info


def known_signature(func: BaseFunc) -> StructInfo:
    """The signature of a function, as far as it is known without deriving the body.

    Without an annotation, the declared result counts only if the body declares the same.
    """
    if not isinstance(func, Function) or func.ret_struct_info is not None:
        return declared_signature(func)
    derived = function_sinfo(func, func.body.struct_info or ObjectStructInfo())
    return derived if func.struct_info == derived else declared_signature(func)


class Signatures(MutableMapping[str, StructInfo]):
    """The signatures by name: those that were set, or else `signature` of the function in `mod`."""

    def __init__(
        self, mod: IRModule, signature: Callable[[BaseFunc], StructInfo] = known_signature
    ) -> None:
        self._mod = mod
        self._signature = signature
        self._known: dict[str, StructInfo] = {}

    @override
    def __getitem__(self, name: str) -> StructInfo:
        known = self._known.get(name)
        if known is None:
            func = self._mod.find_function(name)
            if func is None:
                raise KeyError(name)
            known = self._known[name] = self._signature(func)
        return known

    @override
    def __setitem__(self, name: str, sinfo: StructInfo) -> None:
        self._known[name] = sinfo

    @override
    def __delitem__(self, name: str) -> None:
        del self._known[name]

    @override
    def __iter__(self) -> Iterator[str]:
        yield from {v.name_hint: None for v in self._mod} | self._known

    @override
    def __len__(self) -> int:
        return sum(1 for _ in self)
