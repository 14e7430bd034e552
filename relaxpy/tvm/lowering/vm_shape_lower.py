"""VMShapeLower: shapes are checked, computed and created by calls of the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from typing_extensions import override

from relaxpy.errors import Span, TransformError
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import EMPTY_ATTRS, Node
from relaxpy.ir.core.traverse import children, map_children, rebuild
from relaxpy.ir.link import free_name
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.vm import MakeShapeCode, MatchShapeCode
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.shape_vars import nested_infos, sizes_of, variables_of
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, SeqStmt
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace


class ShapeSlots:
    """The number of each dimension that is not a literal: variables, and expressions over them.

    `known` are those whose value has been stored at the position of the program that is lowered.
    """

    def __init__(self, func: rx.Function) -> None:
        self._numbers: dict[tir.PrimExpr, int] = {}
        self._exprs: list[tir.PrimExpr] = []
        self.known: set[int] = set()
        for expr in _dimensions(func):
            self._enter(expr)
        self._users: dict[int, list[int]] = {}
        self._missing: dict[int, int] = {}
        self._ready: list[int] = []
        for number, expr in enumerate(self._exprs):
            if not isinstance(expr, tir.Var):
                self._await(number, variables_of(expr))

    def __len__(self) -> int:
        return len(self._exprs)

    def _enter(self, expr: tir.PrimExpr) -> None:
        if isinstance(expr, tir.IntImm) or self._find(expr) is not None:
            return
        self._numbers[expr] = len(self._exprs)
        self._exprs.append(expr)

    def _find(self, expr: tir.PrimExpr) -> int | None:
        return self._numbers.get(expr)

    def number(self, expr: tir.PrimExpr) -> int:
        """The number of a dimension of the function."""
        return self._numbers[expr]

    def _await(self, number: int, variables: tuple[tir.Var, ...]) -> None:
        """Note the variables that an expression needs; some may never be stored."""
        self._missing[number] = len(variables)
        if not variables:
            self._ready.append(number)
        for var in variables:
            operand = self._find(var)
            if operand is not None:
                self._users.setdefault(operand, []).append(number)

    def store(self, number: int) -> None:
        """Note that the value of a variable has been stored."""
        self.known.add(number)
        for user in self._users.pop(number, ()):
            self._missing[user] -= 1
            if not self._missing[user]:
                self._ready.append(user)

    def computable(self) -> list[int]:
        """The expressions that can be computed since the last call of this method."""
        ready, self._ready = sorted(self._ready), []
        return ready

    def kernel(self, numbers: list[int]) -> PrimFunc:
        """A kernel that stores the values of these expressions after the stored variables."""
        buffer = decl_buffer((ops.const(len(self), INT64),), "int64", "H")
        loads = {
            var: BufferLoad(buffer, (ops.const(number, INT64),))
            for number, var in enumerate(self._exprs)
            if isinstance(var, tir.Var)
        }
        stores = [
            BufferStore(
                buffer,
                ops.cast_to(substitute(self._exprs[number], loads), INT64),
                (ops.const(number, INT64),),
            )
            for number in numbers
        ]
        body = stores[0] if len(stores) == 1 else SeqStmt(tuple(stores))
        heap = tir.Var("H", "handle")
        kernel = PrimFunc((heap,), body, buffer_map={heap: buffer})
        return kernel.with_attr("tir.is_host_func", True)


def _dimensions(func: rx.Function) -> Iterator[tir.PrimExpr]:
    """The dimensions in parameters, casts, shapes, scalars and the result, in order."""
    for param in func.params:
        if param.struct_info is not None:
            yield from sinfo_dimensions(param.struct_info)
    yield from _expr_dimensions(func.body)
    if func.ret_struct_info is not None:
        yield from sinfo_dimensions(func.ret_struct_info)


def sinfo_dimensions(sinfo: rx.StructInfo) -> Iterator[tir.PrimExpr]:
    """The dimensions of a struct info, without those of functions."""
    yield from sizes_of(sinfo)
    if not isinstance(sinfo, rx.FuncStructInfo):
        for nested in nested_infos(sinfo):
            yield from sinfo_dimensions(nested)


def _expr_dimensions(node: object) -> Iterator[tir.PrimExpr]:
    match node:
        case rx.Function() | rx.Var() | rx.StructInfo():
            return
        case rx.MatchCast(value=value, struct_info=sinfo):
            yield from _expr_dimensions(value)
            yield from sinfo_dimensions(sinfo)
        case rx.VarBinding(value=value):
            yield from _expr_dimensions(value)
        case rx.ShapeExpr(values=values):
            yield from values
        case rx.PrimValue(value=value):
            if variables_of(value):
                yield value
        case rx.Expr() | rx.BindingBlock():
            for child in children(node):
                yield from _expr_dimensions(child)
        case _:
            return


_HEAP = rx.TensorStructInfo(None, INT64, ndim=1)
_UNIT = rx.TupleStructInfo(())


@dataclass(frozen=True, kw_only=True)
class VMShapeLower(Pass):
    """Keeps symbolic dimensions in a tensor of integers, and makes the checks of struct info calls.

    Parameters and casts are checked by `vm.builtin.check_…` and by `vm.builtin.match_shape`, which
    also stores the dimensions; kernels compute expressions over them; `vm.builtin.make_shape`
    creates shapes. With `emit_err_ctx`, checks know the function and the value that they are about.

    Errors:
        TransformError: a dataflow block contains a cast or a symbolic shape.
    """

    emit_err_ctx: bool = True

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        result = mod.clone()
        for var, func in mod.items():
            if isinstance(func, rx.Function):
                result[var] = _ShapeLowering(self, var.name_hint, result).lowered(func)
        same = all(result[var] is func for var, func in mod.items())
        return mod if same else normalize_module(result)


class _ShapeLowering(BindingRewriter):
    """Lowers one function; kernels are added to `mod`."""

    def __init__(self, options: VMShapeLower, name: str, mod: IRModule) -> None:
        super().__init__()
        self._options, self._name, self._mod = options, name, mod
        self._out: list[rx.Binding] = []
        self._heap = rx.Var("shape_heap")
        self._todo: list[tuple[rx.Expr, Sequence[tir.PrimExpr], bool, str]] = []
        self._span: Span | None = None
        self._result: rx.StructInfo | None = None

    def lowered(self, func: rx.Function) -> rx.Function:
        """The function with checks and shapes as calls."""
        self._slots = ShapeSlots(func)
        self._function = func
        if not func.params and not self._slots:
            return func
        self._body = func.body
        sinfo = func.struct_info
        ret = sinfo.ret if isinstance(sinfo, rx.FuncStructInfo) else func.ret_struct_info
        self._result = ret
        self._start(func)
        after = rebuild(func, body=self.sequence(func.body), ret_struct_info=ret)
        if func.is_pure and not func.attrs.get("relax.force_pure", False):
            return after.with_attr("relax.force_pure", True)
        return after

    def _start(self, func: rx.Function) -> None:
        """Allocate the memory of the dimensions, and check the parameters."""
        self._span = func.span
        heap = rx.Call(Op.get("relax.null_value"), ())
        if self._slots:
            args = (
                rx.ExternFunc("vm.builtin.alloc_shape_heap"),
                rx.Tuple((_int(len(self._slots)),)),
            )
            heap = rx.Call(Op.get("relax.call_builtin_with_ctx"), args, EMPTY_ATTRS, (_HEAP,))
        self._bind(self._heap, replace(heap, span=func.span))
        checked = func.attrs.get("num_input", len(func.params))
        for k, param in enumerate(func.params):
            if param.struct_info is not None:
                only_dynamic = isinstance(checked, int) and k >= checked
                text = f"loc=param[{k}], param={param.name_hint}, annotation={param.struct_info}"
                self._check(
                    param, param.struct_info, self._context(text), only_dynamic, always=True
                )
        self._match()

    def _context(self, text: str) -> str:
        return f"ErrorContext(fn={self._name}, {text}) " if self._options.emit_err_ctx else ""

    # ---- bindings

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        is_body = seq is self._body
        outer, self._out = ([], self._out) if is_body else (self._out, [])
        known = set(self._slots.known)
        blocks: list[rx.BindingBlock] = []
        for block in seq.blocks:
            if isinstance(block, rx.DataflowBlock):
                self._flush(blocks)
                blocks.append(self._dataflow(block))
                continue
            for binding in block.bindings:
                self._binding(binding)
        self._span = seq.body.span or seq.span or self._function.span
        body = self._explicit(seq.body, is_result=is_body)
        if is_body:
            self._check_result(seq.body)
        self._flush(blocks)
        self._out, self._slots.known = outer, known
        return rebuild(seq, blocks=tuple(blocks), body=body)

    def _flush(self, blocks: list[rx.BindingBlock]) -> None:
        if self._out:
            blocks.append(rx.BindingBlock(tuple(self._out)))
            self._out = []

    def _dataflow(self, block: rx.DataflowBlock) -> rx.DataflowBlock:
        """A dataflow block, in which no calls can be inserted."""
        for binding in block.bindings:
            mark = len(self._out)
            self._explicit(binding.value)
            if len(self._out) > mark or isinstance(binding, rx.MatchCast):
                raise TransformError(
                    f"VMShapeLower: {binding} is in a dataflow block, where calls of the runtime "
                    "are not allowed",
                    rule="PU-10",
                    span=binding.span,
                    hint="apply ToNonDataflow first",
                )
        return block

    def _binding(self, binding: rx.Binding) -> None:
        value = binding.value
        if isinstance(value, rx.If):
            branches = {
                k: self.sequence(getattr(value, k)) for k in ("true_branch", "false_branch")
            }
            value = rebuild(value, **branches)
        else:
            value = self._explicit(value)
        if isinstance(binding, rx.MatchCast):
            self._check(value, binding.struct_info, self._context(f"loc=match_cast, {binding}"))
            self._match()
        self._out.append(binding if value is binding.value else replace(binding, value=value))

    def _explicit(self, expr: rx.Expr, *, is_result: bool = False) -> rx.Expr:
        """The expression with variables instead of symbolic shapes and scalars."""
        match expr:
            case rx.Function() | rx.Var() | rx.SeqExpr() | rx.If():
                return expr
            case rx.ShapeExpr(values=values):
                if not any(variables_of(v) for v in values):
                    return expr
                codes = [c for v in values for c in self._made(v)]
                args = (self._heap, _int(len(values)), *codes)
                # The result is as precise as it is declared; kernels expect the dimensions.
                sinfo: rx.StructInfo | None = rx.ShapeStructInfo(ndim=len(values))
                if not is_result or not _covers(self._result or rx.ObjectStructInfo(), sinfo):
                    sinfo = expr.struct_info
                return self._call("make_shape", args, sinfo or rx.ShapeStructInfo(values), "s")
            case rx.PrimValue(value=value):
                if value.dtype != INT64 or not variables_of(value):
                    return expr
                scalar = rx.PrimStructInfo(value.dtype, value)
                return self._call("make_prim_value", (self._heap, *self._made(value)), scalar, "v")
            case _:
                return map_children(self._child, expr)

    def _child(self, node: Node) -> Node:
        return self._explicit(node) if isinstance(node, rx.Expr) else node

    def _made(self, value: tir.PrimExpr) -> tuple[rx.Expr, rx.Expr]:
        """The code of `make_shape` for a dimension."""
        if isinstance(value, tir.IntImm):
            return _int(MakeShapeCode.USE_IMM), _int(value.value)
        return _int(MakeShapeCode.LOAD_SHAPE), _int(self._slots.number(value))

    # ---- checks

    def _check(
        self,
        value: rx.Expr,
        sinfo: rx.StructInfo,
        context: str,
        only_dynamic: bool = False,
        *,
        always: bool = False,
    ) -> None:
        """Check the kind of a value, and note its dimensions, which are matched later."""
        if only_dynamic and not any(map(variables_of, sinfo_dimensions(sinfo))):
            return
        text, known = rx.StringImm(context), value.struct_info
        match sinfo:
            case rx.TensorStructInfo(dtype=dtype, ndim=ndim, shape=shape):
                if always or not _covers(rx.TensorStructInfo(None, dtype, ndim=ndim), known):
                    self._run("check_tensor_info", value, _int(ndim), rx.DataTypeImm(dtype), text)
                if isinstance(shape, rx.ShapeExpr):
                    self._todo.append((value, shape.values, True, context))
            case rx.ShapeStructInfo(ndim=ndim, values=values):
                if always or not _covers(rx.ShapeStructInfo(ndim=ndim), known):
                    self._run("check_shape_info", value, _int(ndim), text)
                if values is not None:
                    self._todo.append((value, values, True, context))
            case rx.PrimStructInfo(dtype=dtype, value=expected):
                if always or not _covers(rx.PrimStructInfo(dtype), known):
                    self._run("check_prim_value_info", value, rx.DataTypeImm(dtype), text)
                if expected is not None and dtype == INT64:
                    self._todo.append((value, (expected,), False, context))
            case rx.TupleStructInfo(fields=fields):
                is_tuple = isinstance(known, rx.TupleStructInfo) and len(known.fields) == len(
                    fields
                )
                if always or not is_tuple:
                    self._run("check_tuple_info", value, _int(len(fields)), text)
                for k, field in enumerate(fields):
                    if only_dynamic and not any(map(variables_of, sinfo_dimensions(field))):
                        continue
                    item = self._field(value, k, known if is_tuple else None)
                    self._check(item, field, context, only_dynamic, always=always)
            case rx.FuncStructInfo():
                if always or not isinstance(known, rx.FuncStructInfo):
                    self._run("check_func_info", value, text)
            case _:
                pass

    def _field(self, value: rx.Expr, index: int, known: rx.StructInfo | None) -> rx.Expr:
        if isinstance(value, rx.Tuple):
            return value.fields[index]
        if not isinstance(known, rx.TupleStructInfo):
            return self._call("tuple_getitem", (value, _int(index)), rx.ObjectStructInfo(), "item")
        item = rx.Var("item", known.fields[index])
        self._bind(item, rx.TupleGetItem(value, index, span=self._span))
        return item

    def _match(self) -> None:
        """Match the dimensions that were noted; those that must be computed first are last."""
        waiting, self._todo = self._todo, []
        while waiting:
            later = [todo for todo in waiting if not self._match_one(*todo)]
            numbers = self._slots.computable()
            if numbers:
                self._compute(numbers)
            elif later:
                break  # a variable that nothing binds, which the well-formedness check reports
            waiting = later

    def _match_one(
        self, value: rx.Expr, dims: Sequence[tir.PrimExpr], is_shape: bool, context: str
    ) -> bool:
        """Match the dimensions of a value; whether all of them could be."""
        codes, complete = [], True
        for dim in dims:
            code, number = self._code(dim)
            complete = complete and code != MatchShapeCode.NO_OP
            codes += [_int(code), _int(number)]
        text = rx.StringImm(context)
        if is_shape:
            self._run("match_shape", value, self._heap, _int(len(dims)), *codes, text)
        else:
            self._run("match_prim_value", value, self._heap, *codes, text)
        return complete

    def _code(self, dim: tir.PrimExpr) -> tuple[MatchShapeCode, int]:
        if isinstance(dim, tir.IntImm):
            return MatchShapeCode.ASSERT_EQUAL_TO_IMM, dim.value
        number = self._slots.number(dim)
        if number in self._slots.known:
            return MatchShapeCode.ASSERT_EQUAL_TO_LOAD, number
        if isinstance(dim, tir.Var):
            self._slots.store(number)
            return MatchShapeCode.STORE_TO_HEAP, number
        return MatchShapeCode.NO_OP, 0

    def _compute(self, numbers: list[int]) -> None:
        """Call a new kernel that computes dimensions."""
        name = free_name("shape_func", self._mod.functions_by_name)
        self._mod[name] = self._slots.kernel(numbers)
        kernel = self._mod.get_global_var(name)
        self._bind(rx.Var("_"), rx.Call(kernel, (self._heap,), span=self._span))
        self._slots.known.update(numbers)

    def _check_result(self, body: rx.Expr) -> None:
        """Check the result if it is not known to have the declared struct info."""
        declared = self._function.ret_struct_info
        if declared is not None and not _covers(declared, body.struct_info):
            self._check(body, declared, self._context(f"loc=return, annotation={declared}"))
            self._match()

    # ---- calls

    def _run(self, name: str, *args: rx.Expr) -> None:
        self._call(name, args, _UNIT, "_")

    def _call(self, name: str, args: Sequence[rx.Expr], sinfo: rx.StructInfo, hint: str) -> rx.Var:
        """A new variable for the result of a packed function of the runtime."""
        callee = rx.ExternFunc(f"vm.builtin.{name}")
        var = rx.Var(hint)
        call = rx.Call(callee, tuple(args), EMPTY_ATTRS, (sinfo,), span=self._span)
        return self._bind(var, call)

    def _bind(self, var: rx.Var, value: rx.Expr) -> rx.Var:
        self._out.append(rx.VarBinding(var, value, self._span))
        return var


def _int(value: int) -> rx.PrimValue:
    return rx.PrimValue(ops.const(int(value), INT64))


def _covers(expected: rx.StructInfo, known: rx.StructInfo | None) -> bool:
    return known is not None and is_base_of(expected, known)
