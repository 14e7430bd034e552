"""PrimFunc: a loop-level kernel with its signature, its specialisation and its verifier.

A kernel may also be source in another language, such as CUDA, which relaxpy cannot run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from keyword import iskeyword
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias

from typing_extensions import override

from relaxpy.errors import Diagnostic, MisuseError, Span, WellFormedError, check_type, unexpected
from relaxpy.ir import hooks
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import HANDLE, INT32, INT64, DataType
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, Node
from relaxpy.ir.core.traverse import occurrences, rewrite, walk
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.function import function_attrs
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Call, ExprLike, IntImm, IterVarKind, Let, PrimExpr, StringImm, Var
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.reduce import Reduce
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing


def scalars_of(func: PrimFunc) -> tuple[Var, ...]:
    """The integer parameters other than sizes of its buffers: their arithmetic may overflow."""
    sizes = {
        var
        for buffer in func.buffer_map.values()
        for size in buffer.shape
        for var in occurrences(size, Var)
    }
    return tuple(p for p in func.params if p.dtype.is_int and p not in sizes)


def specialized(
    func: PrimFunc, param_map: Mapping[Var, ExprLike | Buffer], *, are_arguments: bool = False
) -> PrimFunc:
    """Specialise `func` for the values of parameters in `param_map`.

    If they `are_arguments` of a call in a well-formed program, computed dimensions need not be
    provably equal: they are compared when the kernel is called.

    Errors:
        MisuseError (also TypeError, ValueError): see `PrimFunc.specialize`.
    """
    check_type(param_map, Mapping, "param_map maps parameters to values")
    if not param_map:
        return func
    values = _Values(func)
    for param, value in param_map.items():
        if not isinstance(param, Var) or param not in func.params:
            raise MisuseError(f"{param!r:.60} is not a parameter of the function", about=param_map)
        values.enter(param, value)
    values.check(are_arguments=are_arguments)
    params = [p for p in func.params if p not in values.values and p not in values.pointers]
    buffers = {p: b for p, b in func.buffer_map.items() if p in params}
    body = values.with_pointers(func.body)
    partial = func.with_fields(
        params=tuple(params), buffer_map_items=tuple(buffers.get(p) for p in params), body=body
    )
    return substitute(partial, values.values, folded_literals)


def folded_literals(node: Node) -> Node | None:
    """Fold an operation on literals (`ops.folded`), or one that a literal decides."""
    match node:
        case tir.BinaryOpExpr(a=tir.ConstExpr(), b=tir.ConstExpr()):
            return ops.folded(node)
        case tir.Junction(a=tir.IntImm()) | tir.Junction(b=tir.IntImm()):
            join = ops.all_of if isinstance(node, tir.And) else ops.any_of
            return join(node.a, node.b)
        case tir.Not(a=tir.IntImm() as a):
            return ops.logical_not(a)
        case tir.Cast(value=tir.ConstExpr() as value, dtype=dtype):
            try:
                return ops.cast_to(value, dtype)
            except MisuseError:  # no number of that datatype: how it is converted, a run decides
                return None
        case tir.Select(condition=tir.IntImm(value=chosen)):
            return node.true_value if chosen else node.false_value
        case _:
            return None


class _Values:
    """The values of variables, derived from the values of parameters."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.values: dict[Var, PrimExpr] = {}
        self.pointers: dict[Var, PrimExpr] = {}
        self._derived: list[tuple[Buffer, PrimExpr, Buffer, PrimExpr]] = []

    def check(self, *, are_arguments: bool) -> None:
        """Check that expressions over variables have the declared values.

        Errors:
            MisuseError: a dimension of a buffer is another one.
        """
        for old, old_value, new, new_value in self._derived:
            equal = prove_equal(substitute(old_value, self.values), new_value)
            if equal is False or (equal is None and not are_arguments):
                raise MisuseError(
                    f"buffer {old.name} has `{old_value}`, found `{new_value}`; only a variable "
                    "dimension can be specialised",
                    about=new,
                )

    def enter(self, param: Var, value: ExprLike | Buffer) -> None:
        buffer = self.func.buffer_of(param)
        if isinstance(value, Buffer):
            if buffer is None:
                raise MisuseError(
                    f"{param.name} has no buffer, found buffer {value.name}", about=value
                )
            self.unify(buffer, value)
            return
        if buffer is not None:
            raise MisuseError(
                f"{param.name} is a handle of buffer {buffer.name}, whose value is a Buffer",
                about=value,
            )
        new = ops.const(value, param.dtype) if type(value) is int else ops.convert(value)
        if new.dtype != param.dtype:
            raise MisuseError(f"{param.name} of {param.dtype} cannot be {new.dtype} `{new}`")
        if param.dtype.family == "handle" and not isinstance(new, Var):
            self.pointers[param] = new
        else:
            self.assign(param, new)

    def unify(self, old: Buffer, new: Buffer) -> None:
        """Unify the shape, strides and offset of `old` with those of `new`."""
        if old.dtype != new.dtype:
            raise MisuseError(f"buffer {old.name} holds {old.dtype}, found {new.dtype}")
        for noun, old_count, new_count in (
            ("dimensions", len(old.shape), len(new.shape)),
            ("strides", len(old.strides), len(new.strides)),
            ("as alignment", old.data_alignment, new.data_alignment),
            ("as offset factor", old.offset_factor, new.offset_factor),
        ):
            if old_count != new_count:
                raise MisuseError(f"buffer {old.name} has {old_count} {noun}, found {new_count}")
        old_values = (*old.shape, *old.strides, old.elem_offset)
        new_values = (*new.shape, *new.strides, new.elem_offset)
        for old_value, new_value in zip(old_values, new_values, strict=True):
            if isinstance(old_value, Var):
                self.assign(old_value, ops.cast_to(new_value, old_value.dtype))
            else:
                self._derived.append((old, old_value, new, new_value))
        if any(new is buffer for buffer in self.func.buffer_map.values()):
            self.assign(old.data, new.data)

    def assign(self, var: Var, value: PrimExpr) -> None:
        if value is var:
            return
        assigned = self.values.setdefault(var, value)
        if prove_equal(assigned, value) is not True:
            raise MisuseError(f"{var.name} has two values, `{assigned}` and `{value}`")

    def with_pointers(self, body: stmt.Stmt) -> stmt.Stmt:
        """Wrap the declarations of buffers in bindings of the pointers that they use."""
        for var, value in self.pointers.items():
            used = [
                n for n in walk(body) if isinstance(n, stmt.DeclBuffer) and n.buffer.data is var
            ]

            def bound(node: Node, var: Var = var, value: PrimExpr = value) -> Node | None:
                declares = isinstance(node, stmt.DeclBuffer) and node.buffer.data is var
                return stmt.LetStmt(var, value, node) if declares else None  # type: ignore[arg-type]

            changed = rewrite(body, bound) if used else stmt.LetStmt(var, value, body)
            assert isinstance(changed, stmt.Stmt)
            body = changed
        return body


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrimFunc(rx.BaseFunc):
    """A kernel (AST-4) over scalars and handles; `buffer_map` maps handles to buffers.

    A Buffer among `params` is replaced by a handle of the same name with an entry in `buffer_map`.
    """

    _fields = ("params", "buffer_map_items", "ret_type", "body", "attrs")
    _binds = frozenset(("params", "buffer_map_items"))
    _scope = True
    params: tuple[Var, ...]
    body: stmt.Stmt
    ret_type: DataType | None = None
    buffer_map: Mapping[Var, Buffer] = field(default_factory=dict)
    attrs: Attrs = EMPTY_ATTRS
    struct_info: rx.StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        params: list[Var] = []
        check_type(self.params, (list, tuple), "expected a list of parameters", rule="AST-4")
        check_type(self.body, stmt.Stmt, "the body is a statement", rule="AST-4")
        buffers = dict(self.buffer_map or {})
        for buffer in buffers.values():
            check_type(buffer, Buffer, "buffer_map maps handles to Buffers", rule="AST-4")
        for param in self.params:
            if isinstance(param, Buffer):
                handle = Var(param.name, "handle")
                buffers[handle] = param
                params.append(handle)
            elif isinstance(param, Var):
                params.append(param)
            else:
                raise unexpected(param, "a parameter is a Var or a Buffer", rule="AST-4")
        for stranger in buffers.keys() - set(params):
            raise unexpected(
                stranger,
                "buffer_map maps parameters to Buffers",
                rule="AST-4",
                hint="list it among the parameters",
            )
        ret = self.ret_type
        if isinstance(ret, PrimType):
            ret = ret.dtype
        set_field = object.__setattr__
        set_field(self, "params", tuple(params))
        set_field(self, "buffer_map", MappingProxyType(buffers))
        set_field(self, "ret_type", DataType(ret or "") or None)
        set_field(self, "attrs", function_attrs(self.attrs))
        set_field(self, "struct_info", _signature(self))

    @property
    def buffer_map_items(self) -> tuple[Buffer | None, ...]:
        """The buffer of each parameter, or None."""
        return tuple(self.buffer_map.get(p) for p in self.params)

    def buffer_of(self, param: Var) -> Buffer | None:
        """The buffer of the handle `param`, or None."""
        return self.buffer_map.get(param)

    @override
    def _with_attrs(self, attrs: Attrs) -> Self:
        copy = object.__new__(type(self))  # values that do not depend on attributes are shared
        for name in ("params", "body", "ret_type", "buffer_map", "struct_info", "span"):
            object.__setattr__(copy, name, getattr(self, name))
        object.__setattr__(copy, "attrs", function_attrs(attrs))
        return copy

    def with_fields(self, **changes: Any) -> PrimFunc:
        """Replace some of `_fields`; the signature is derived from the new fields."""
        params = changes.get("params", self.params)
        buffers = changes.get("buffer_map_items", self.buffer_map_items)
        return PrimFunc(
            params,
            changes.get("body", self.body),
            changes.get("ret_type", self.ret_type),
            {p: b for p, b in zip(params, buffers, strict=True) if b is not None},
            changes.get("attrs", self.attrs),
            span=self.span,
        )

    def with_body(self, new_body: stmt.Stmt) -> PrimFunc:
        """Replace the body."""
        return self.with_fields(body=new_body)

    @user_facing
    def specialize(self, param_map: Mapping[Var, Any]) -> PrimFunc:
        """Replace scalar parameters by values, and the shapes of handles by those of Buffers.

        The replaced scalar parameters are removed, and operations on literals are folded.

        Errors:
            MisuseError (also TypeError, ValueError): a key is not a parameter; a value has another
                datatype, rank, alignment or offset factor; two values contradict each other; or a
                dimension that differs is not a variable.
        """
        return specialized(self, param_map)

    @override
    @user_facing
    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        """Run this kernel on arrays (it writes into them), or build a Call on Relax expressions."""
        if any(isinstance(a, rx.Expr) for a in args):
            return rx.Expr.__call__(self, *args)
        return hooks.call("call_function", self, args, kwargs)


def _signature(func: PrimFunc) -> rx.FuncStructInfo:
    """Derive the signature of a kernel (DER-49): the impure closure form over its parameters."""
    bound = {p for p in func.params if func.buffer_of(p) is None and p.dtype.is_int}
    for mapped in func.buffer_map.values():
        bound |= {s for s in mapped.shape if isinstance(s, Var)}
    params: list[rx.StructInfo] = []
    for param in func.params:
        buffer = func.buffer_of(param)
        if buffer is not None:
            is_known = all(
                var in bound
                for size in buffer.shape
                if not isinstance(size, IntImm)
                for var in walk(size)
                if isinstance(var, Var)
            )
            params.append(
                rx.TensorStructInfo(
                    _as_int64(buffer.shape) if is_known else None, buffer.dtype, ndim=buffer.ndim
                )
            )
        elif isinstance(param.type_annotation, PointerType) or param.dtype.family == "handle":
            params.append(rx.ObjectStructInfo())
        else:
            params.append(rx.PrimStructInfo(param.dtype, param))
    ret: rx.StructInfo = (
        rx.TupleStructInfo(()) if func.ret_type is None else rx.PrimStructInfo(func.ret_type)
    )
    return rx.FuncStructInfo(tuple(params), ret, False)


def _as_int64(shape: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    return tuple(s if s.dtype == INT64 else ops.cast_to(s, INT64) for s in shape)


Scope: TypeAlias = list[Var]
Kind: TypeAlias = Literal["visit", "bind", "bind again", "leave"]
Step: TypeAlias = tuple[Kind, object, Scope]
"""A step of the traversal: its kind, the node, and the variables that end with the parent node.

A shared expression may be visited several times, and binds its variables each time."""


class _Definitions:
    """The variables in scope during the traversal, and the errors in their uses."""

    def __init__(self) -> None:
        self.live: set[Var] = set()
        self.defined: set[Var] = set()
        self.faults: dict[tuple[str, Var], Diagnostic] = {}
        self.missing: dict[Var, None] = {}
        self.span: Span | None = None

    def fault(self, message: str, var: Var, rule: str | None = None) -> None:
        name = repr(var.name) if var.name else f"one of {var.dtype} without a name"
        diagnostic = Diagnostic(f"{message} {name}", rule=rule, span=self.span)
        self.faults.setdefault((message, var), diagnostic)

    def use(self, var: Var) -> None:
        if var not in self.live:
            self.missing[var] = None
            when = "after the end of its scope" if var in self.defined else "without a definition"
            self.fault(f"a variable is used {when}:", var, "PX-7")

    def define(self, var: Var, scope: Scope, *, again: bool = False) -> None:
        if var in self.defined and not again:
            self.fault("two places define the variable", var)
        if var not in self.live:  # a variable of an enclosing scope ends there
            scope.append(var)
        self.live.add(var)
        self.defined.add(var)

    def free(self, buffer: Buffer, scope: Scope, *, shape: bool = False) -> None:
        """Define the variables that are a whole stride or offset of a declared buffer."""
        for size in (*(buffer.shape if shape else ()), *buffer.strides, buffer.elem_offset):
            if isinstance(size, Var) and size.dtype == "handle":
                self.fault("a size is an address:", size)
            if isinstance(size, Var) and size not in self.live:
                self.define(size, scope)

    def parameters(self, func: PrimFunc) -> None:
        scope: Scope = []
        for param in func.params:
            self.define(param, scope)
        for buffer in func.buffer_map.values():
            self.define(buffer.data, scope, again=True)
            self.free(buffer, scope, shape=True)

    def walk(self, body: Node) -> None:
        """Visit the kernel in the order in which its variables are defined."""
        steps: list[Step] = [("visit", body, [])]
        while steps:
            kind, item, scope = steps.pop()
            if kind == "leave":
                self.live.difference_update(scope)
            elif kind != "visit":
                self.bound(item, scope, again=kind == "bind again")
            elif isinstance(item, Var):
                self.use(item)
            elif isinstance(item, Buffer):
                self.use(item.data)
            elif isinstance(item, stmt.MatchBufferRegion):
                steps += [("bind", item, scope), ("visit", item.source, scope)]
            elif isinstance(item, PrimExpr) and next(occurrences(item, Let, Reduce), None) is None:
                for node in walk(item):
                    if isinstance(node, Var):
                        self.use(node)
                    elif isinstance(node, Buffer):
                        self.use(node.data)
            elif isinstance(item, Node):
                self.span = getattr(item, "span", None) or self.span
                steps += reversed(_steps(item))

    def bound(self, item: object, scope: Scope, *, again: bool) -> None:
        """Define the variables of a binding position."""
        match item:
            case Var():
                self.define(item, scope, again=again)
            case IterVar(var=var):
                index = item.iter_type == IterVarKind.ThreadIndex
                self.define(var, scope, again=again or index)
            case stmt.MatchBufferRegion(buffer=buffer) | stmt.BufferRealize(buffer=buffer):
                self.define(buffer.data, scope, again=isinstance(item, stmt.BufferRealize))
                self.declared(buffer, scope)
            case stmt.DeclBuffer(buffer=buffer):
                self.use(buffer.data)
                self.declared(buffer, scope)
            case Buffer():
                self.define(item.data, scope)
                self.declared(item, scope)
            case _:
                raise AssertionError(item)

    def declared(self, buffer: Buffer, scope: Scope) -> None:
        """Check the shape of a buffer that is declared here, and define its strides and offset."""
        self.span = buffer.span or self.span
        self.free(buffer, scope)
        for size in buffer.shape:
            for child in walk(size):
                if isinstance(child, Var):
                    self.use(child)


def _steps(node: Node) -> list[Step]:
    """The steps through the fields of a node."""
    scope: Scope = []
    if isinstance(node, (stmt.DeclBuffer, stmt.BufferRealize)):
        steps: list[Step] = [("bind", node, scope)]
    else:
        steps = []
    for name in node._fields:
        value = getattr(node, name)
        if name == "node" and getattr(node, "attr_key", None) == "buffer_bind_scope":
            match value:
                case (Buffer() as view, Buffer() as source):  # a view and its source
                    steps += [("visit", source, scope), ("bind", view, scope)]
                    continue
                case _:
                    pass
        if isinstance(value, Buffer) and isinstance(
            node, (stmt.AttrStmt, stmt.DeclBuffer, stmt.BufferRealize)
        ):
            continue  # handled above, or annotated and defined in the body
        if isinstance(node, stmt.For) and name == "thread_binding":
            continue  # the name of the thread index; its value is the loop variable
        binds: Kind = "bind" if isinstance(node, stmt.Stmt) else "bind again"
        members = value if type(value) is tuple else (value,)
        for member in members:
            if isinstance(member, IterVar) and member.dom is not None:
                steps.append(("visit", member.dom, scope))
            if name in node._binds or isinstance(member, IterVar):
                steps.append((binds, member, scope))
            elif isinstance(member, Node):
                steps.append(("visit", member, scope))
    steps.append(("leave", None, scope))
    return steps


def undefined_in(node: Node, defined: Iterable[Var]) -> list[Var]:
    """The variables that a statement or expression uses without a definition."""
    found = _Definitions()
    found.live.update(defined)
    found.walk(node)
    return list(found.missing)


def kernel_faults(func: PrimFunc) -> list[Diagnostic]:
    """The errors in the variables of a kernel: undefined uses and double definitions."""
    return list(_definitions(func).faults.values())


def defined_variables(func: PrimFunc) -> set[Var]:
    """The variables that a kernel defines, by parameters, loops, blocks and buffers."""
    return _definitions(func).defined


def defined_in(node: Node) -> set[Var]:
    """The variables that a statement defines, by loops, blocks and buffers."""
    definitions = _Definitions()
    definitions.walk(node)
    return definitions.defined


def _definitions(func: PrimFunc) -> _Definitions:
    definitions = _Definitions()
    definitions.parameters(func)
    definitions.walk(func.body)
    return definitions


@user_facing
def verify_well_formed(obj: PrimFunc | IRModule, assert_mode: bool = True) -> bool:
    """True if every variable of the kernels is defined before its uses, and only once.

    Two kernels of a module may not define the same variable, unless they are the same kernel.

    Errors:
        WellFormedError (also ValueError): a variable is not, and `assert_mode` is set.
        MisuseError (also TypeError): `obj` is neither a kernel nor a module.
    """
    check_type(obj, (PrimFunc, IRModule), "expected a PrimFunc or a module")
    members = [obj] if isinstance(obj, PrimFunc) else obj.functions.values()
    faults: list[Diagnostic] = []
    defined: set[Var] = set()
    for func in dict.fromkeys(func for func in members if isinstance(func, PrimFunc)):
        definitions = _definitions(func)
        definitions.span = func.span
        for var in definitions.defined & defined:
            definitions.fault("two kernels define the variable", var)
        defined |= definitions.defined
        faults += definitions.faults.values()
    if faults and assert_mode:
        raise WellFormedError(faults)
    return not faults


def call_kernel(
    kernel: Any, launch_args: object, *args: object, dtype: object = None, **options: object
) -> Call:
    """Build a call of an external kernel, launched over `launch_args`, nested lists of extents.

    `kernel` is its source, with `kernel_name` among the options, or its name, or a Triton
    function.

    Errors:
        MisuseError (also TypeError): `kernel` is none of these.
    """
    if not isinstance(kernel, str) and isinstance(getattr(kernel, "src", None), str):
        kernel, options = kernel.src, {"kernel_name": kernel.__name__, **options}
    if not isinstance(kernel, str) or not kernel:
        raise unexpected(kernel, "an external kernel is a text, a name or a function of Triton")
    if not isinstance(options.get("kernel_name", ""), str):
        raise unexpected(options["kernel_name"], "kernel_name is a string")
    check_type(launch_args, (tuple, list), "a kernel is launched over a list of extents")
    flat_options = [item for option in options.items() for item in option]
    operands = [arg.data if isinstance(arg, Buffer) else ops.convert(arg) for arg in args]
    return Call(
        INT32,
        "tir.call_kernel",
        (StringImm(kernel), _tuple(launch_args), _tuple(flat_options), *operands),
    )


def _tuple(members: Any) -> PrimExpr:
    """A `tvm_tuple` call of values and nested lists."""
    args = [_tuple(m) if isinstance(m, (tuple, list)) else ops.convert(m) for m in members]
    return Call(HANDLE, "tir.tvm_tuple", args)


def members(expr: PrimExpr) -> Any:
    """Invert `_tuple`: return nested lists for tuples, and Python strings for string literals."""
    match expr:
        case Call(op=Op(name="tir.tvm_tuple"), args=args):
            return [members(arg) for arg in args]
        case StringImm(value=text):
            return text
        case _:
            return expr


def kernel_call(call: Call) -> tuple[str, list[Any], dict[str, Any]] | None:
    """The source, launch arguments and options of a call of an external kernel, or None."""
    match call:
        case Call(
            op=Op(name="tir.call_kernel"), args=(StringImm(value=kernel), launch, flat_options, *_)
        ):
            extents, options = members(launch), members(flat_options)
        case _:
            return None
    if not isinstance(extents, list) or not isinstance(options, list) or len(options) % 2:
        return None
    if not all(isinstance(name, str) and is_identifier(name) for name in options[::2]):
        return None
    return kernel, extents, dict(zip(options[::2], options[1::2], strict=True))


def is_identifier(name: str) -> bool:
    """True if `name` is a Python identifier and not a keyword."""
    return name.isidentifier() and not iskeyword(name)


def kernel_name(call: Call) -> str | None:
    """The name of the external kernel that `call` calls, or None."""
    external = kernel_call(call)
    return None if external is None else str(external[2].get("kernel_name", external[0]))
