"""From the graphs of `torch.fx` with ATen operators to the bindings of Relax functions.

The lines of a user's model are read from the stack traces that PyTorch keeps of nodes.
"""

from __future__ import annotations

import itertools
import linecache
import math
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_leaves, tree_unflatten

from relaxpy.errors import RelaxpyError, Source, Span
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.outputs import OUTPUT_TREE
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import Names, dtype_of, identifier, tensor_of
from relaxpy.plugins.importing.unsupported import (
    FrontendError,
    OpNotImplemented,
    UnsupportedError,
    UnsupportedNode,
    refuse_nodes,
)
from relaxpy.plugins.torch import ops as ops
from relaxpy.plugins.torch.arrays import constant, identity, part_name, real_view, refuse_form
from relaxpy.plugins.torch.complexes import (
    Complex,
    as_tensor,
    convert as convert_complex,
    from_pair,
    has_complex_result,
    is_complex,
)
from relaxpy.plugins.torch.context import Context, cast
from relaxpy.plugins.torch.decompose import is_decomposed, names_of, traced
from relaxpy.plugins.torch.fx_graph import Input, Kind, Program, has_names, named_outputs
from relaxpy.plugins.torch.mutation import Changes, is_overload, twin_of
from relaxpy.plugins.torch.registry import Value, find, is_converted
from relaxpy.plugins.torch.symbols import Symbols, is_symbolic
from relaxpy.support import progress
from relaxpy.support.dataclass import dataclass, replace

_FRAME = 'File "'
_PYTORCH = _FRAME + os.path.dirname(torch.__file__) + os.sep
#: A file, a line, its text and, where PyTorch marks a part of that, the marks below it.
_LINE = re.compile(
    r'File "([^"\n]*)", line (\d+), in [^\n]*(?:\n +(\S[^\n]*)(?:\n    ( *)([~^]+))?)?'
)


class Lines:
    """The lines from which the nodes of a graph come; nodes of one line share its span."""

    def __init__(self) -> None:
        self._spans: dict[str, Span | None] = {}

    def span(self, node: Any) -> Span | None:
        """The innermost line of a node that is not PyTorch's own; or that, if there is no other."""
        trace = node.meta.get("stack_trace")
        if not trace:
            return None
        begin = innermost = trace.rfind(_FRAME)
        while begin >= 0 and trace.startswith(_PYTORCH, begin):
            begin = trace.rfind(_FRAME, 0, begin)
        if begin < 0:
            begin = innermost
        end = trace.find(_FRAME, begin + len(_FRAME))
        frame = trace[begin:] if end < 0 else trace[begin:end]
        if frame not in self._spans:
            self._spans[frame] = _span(frame)
        return self._spans[frame]


def _span(frame: str) -> Span | None:
    """The span of a frame, of the text that was run: the file may be another one by now."""
    found = _LINE.match(frame)
    if found is None:
        return None
    file, number, text, before, marks = found.groups()
    line, text = int(number), (text or "").rstrip()
    now = linecache.getline(file, line).rstrip()
    indent = len(now) - len(text) if now.endswith(text) else 0
    if now[:indent].isspace():
        text = now
    else:
        indent = 0
    begin = indent + len(before or "")
    end = begin + len(marks) if marks else len(text)
    return Span(Source(file, text, line), line, begin + 1, line, end + 1)


_T = TypeVar("_T")


@dataclass(frozen=True)
class Options:
    """The options of an importer."""

    keep_params: bool = False
    no_bind_tuple: bool = False
    custom: Mapping[str, Callable[[Any, Importer], Any]] = field(default_factory=dict)
    #: With it, the inputs are named by their numbers.
    input_prefix: str = ""
    #: True if a single result is a tuple of one.
    unit_tuple: bool = True
    #: Operators that are decomposed even if they have converters.
    simple: Set[Any] = frozenset()
    #: Tensors that stand for inputs, by the position of the input.
    bound: Mapping[int, Any] = field(default_factory=dict)
    #: The form of the result, a TreeSpec; without it, changed inputs and outputs are one tuple.
    form: Any = None
    #: Names of sizes, by the position of the input and the axis.
    sizes: Mapping[tuple[int, int], str] = field(default_factory=dict)


class _Missing:
    """The value of a node that cannot be imported, or that needs one."""


@dataclass(eq=False)
class Importer:
    """Builds one function of a module; `unsupported` collects the nodes that cannot be imported.

    A converter of the caller's takes a node and this object. It may use `env` (values by node),
    `block_builder` and `retrieve_args`.
    """

    program: Program
    options: Options = field(default_factory=Options)
    builder: BlockBuilder = field(default_factory=BlockBuilder)
    env: dict[Any, Any] = field(default_factory=dict)
    symbols: Symbols = field(default_factory=Symbols)
    unsupported: list[UnsupportedNode] = field(default_factory=list)
    #: The in-place changes of the graph that is being imported.
    _changes: Changes = field(default_factory=Changes)
    #: The operators of the nodes that cannot be imported.
    refused: set[Any] = field(default_factory=set)
    _constants: dict[tuple[object, ...], rx.Constant] = field(default_factory=dict)
    #: The graphs that operators are decomposed into.
    _traced: dict[Any, Any] = field(default_factory=dict)
    _lines: Lines = field(default_factory=Lines)
    _names: Names = field(default_factory=lambda: Names(identifier))
    #: True in a region of `torch.autocast`.
    casts: bool = False

    @property
    def block_builder(self) -> BlockBuilder:
        """The builder of the module, by TVM's name."""
        return self.builder

    def module(self, name: str = "main") -> IRModule:
        """The module with the function of this name.

        Errors:
            OpNotImplemented: nodes cannot be imported; the error lists all of them.
        """
        self.function(name)
        return self.builder.finalize()

    def function(self, name: str) -> None:
        """Add the function to the builder's module.

        Errors:
            OpNotImplemented: nodes cannot be imported; the error lists all of them.
        """
        inputs, params = self._parameters()
        attrs: dict[str, object] = {"num_input": len(inputs)}
        if params:
            attrs["params"] = [value.data for value in params.values()]
        elif not self.options.keep_params:
            attrs.clear()
        tree = self._output_tree()
        if has_names(tree):
            attrs[OUTPUT_TREE] = tree
        pure = self.program.is_pure
        assertions = self._assertions()
        if assertions and pure:
            attrs["relax.force_pure"] = True
        with self.builder.function(name, [*inputs, *params], attrs or None, pure=pure):
            for assertion in assertions:
                self.builder.emit(assertion, "_")
            if self.program.has_branches or not pure:
                output: rx.Expr = self.builder.emit(self._result())
            else:
                with self.builder.dataflow():
                    output = self._output()
            self.builder.emit_func_output(output)

    def _output_tree(self) -> Any:
        """The places of the results in the form in which the model returns them, if it is known."""
        form, changes = self.program.form, self.program.followed[self.program.graph]
        if form is None or self.options.form is not None or changes is None:
            return None
        (results,) = self.program.output.args
        count = itertools.count(len(changes.inputs))
        places = [None if value is None else next(count) for value in results]
        return named_outputs(form, iter(places[len(places) - form.num_leaves :]))

    def _assertions(self) -> list[rx.Expr]:
        try:
            return self.program.conditions.assertions(self.symbols)
        except UnsupportedError as error:
            raise FrontendError(f"a condition on sizes cannot be imported: {error}") from None

    def _output(self) -> rx.Expr:
        result = self._result()
        if self.options.no_bind_tuple and isinstance(result, rx.Tuple):
            return rx.Tuple(tuple(map(self.builder.emit_output, result.fields)))
        return self.builder.emit_output(result)

    def _parameters(self) -> tuple[list[rx.Var], dict[rx.Var, rx.Constant]]:
        """The variables of the inputs, and those of parameters with their values."""
        users = [item for item in self.program.inputs if item.kind is Kind.INPUT]
        self.symbols.define(list(map(_sizes_of, users)), self.options.sizes)
        inputs = [_of_input(item, self._input) for item in users]
        params: dict[rx.Var, rx.Constant] = {}
        for item in self.program.inputs:
            if item.kind in (Kind.LITERAL, Kind.SIZE):
                self.env[item.node] = self._value(item.meta)
            elif item.kind is not Kind.INPUT:
                if item.kind is Kind.PARAMETER and self.options.keep_params:
                    value = _of_input(item, lambda given: self.constant(real_view(given.tensor)))
                    var = rx.Var(self._names.new(item.name), value.struct_info)
                    params[var] = value
                    self.env[item.node] = var
                else:
                    self.env[item.node] = _of_input(item, lambda given: self.value(given.tensor))
        return inputs, params

    def _input(self, item: Input) -> rx.Var:
        if isinstance(item.meta, torch.Tensor):
            sizes = [self.symbols.expr(size) for size in item.meta.shape]
            pair = [2] if item.meta.dtype.is_complex else []
            info: Any = tensor_of([*sizes, *pair], part_name(item.meta.dtype))
            var = rx.Var(self._input_name(item), info)
            self.env[item.node] = var
        elif isinstance(item.meta, torch.Generator):
            self.env[item.node] = var = rx.Var(self._input_name(item), rx.ObjectStructInfo())
        else:
            size = self.symbols.expr(item.meta)
            var = rx.Var(self._input_name(item), rx.ShapeStructInfo((size,)))
            self.env[item.node] = size
        return var

    def _input_name(self, item: Input) -> str:
        prefix = self.options.input_prefix
        users = [other for other in self.program.inputs if other.kind is Kind.INPUT]
        return self._names.new(f"{prefix}{users.index(item)}" if prefix else item.name)

    def input_places(self) -> list[int]:
        """Where the parameters of the function stand among the inputs of the graph."""
        return [k for k, item in enumerate(self.program.inputs) if item.kind is Kind.INPUT]

    def constant(self, tensor: Any) -> rx.Constant:
        """The constant of a tensor; tensors with the same elements in one memory are one."""
        refuse_form(tensor)
        key = identity(tensor)
        if key not in self._constants or not tensor.numel():
            self._constants[key] = constant(tensor)
        return self._constants[key]

    def value(self, tensor: Any) -> rx.Constant | Complex:
        """The constant of a tensor, or those of the parts of complex numbers."""
        if not tensor.is_complex():
            return self.constant(tensor)
        pair = real_view(tensor)
        return Complex(self.constant(pair[..., 0]), self.constant(pair[..., 1]))

    def _result(self) -> rx.Expr:
        for item in self.program.inputs:
            given = self.env[item.node]
            if isinstance(given, rx.Var) and has_complex_result(item.meta):
                self.env[item.node] = from_pair(Context(self, item.node), given)
        values = self.run(self.program.graph)
        refuse_nodes(self.unsupported, "PyTorch")
        flat, form = list(_flat(values)), self.options.form
        if form is not None:
            flat = tree_unflatten(flat[len(flat) - form.num_leaves :], form)
        try:
            result = self._nested(Context(self, self.program.output), flat)
        except UnsupportedError as error:
            raise FrontendError(f"a result of the program cannot be imported: {error}") from None
        match result:
            case rx.Tuple(fields=(single,)) if not self.options.unit_tuple:
                return single
            case _:
                return result

    def _nested(self, context: Context, result: Any) -> rx.Expr:
        """A result, with tuples for what has members in PyTorch; what is None is left out."""
        members = tree_leaves(result, is_leaf=lambda value: value is not result)
        if len(members) == 1 and members[0] is result:
            return as_tensor(context, result)
        return rx.Tuple(tuple(self._nested(context, m) for m in members if m is not None))

    def run(self, graph: Any) -> Any:
        """The values of the outputs of a graph whose inputs are in `env`, emitted here.

        Errors:
            UnsupportedError: it changes tensors in a way that cannot be followed.
        """
        changes, before = self.program.followed[graph], self._changes
        if changes is None:
            raise UnsupportedError("its graph changes tensors in place")
        if changes.inputs and graph is not self.program.graph:
            raise UnsupportedError("its graph changes its inputs in place")
        self._changes = changes.begun()
        try:
            result = self._run(graph)
        finally:
            self._changes = before
        return [*map(self._value, changes.inputs), *result] if changes.inputs else result

    def _run(self, graph: Any) -> Any:
        for node in graph.nodes:
            if node.op == "output":
                self._refresh(node)
                return self.values(node.args[0])
            if node.op == "get_attr":
                self.env[node] = self._attribute(graph, node)
            elif node.op == "call_function":
                progress.now(str(node))
                self._convert(node)
            elif node.op != "placeholder":
                self._refuse(node, f"a node that does {node.op} is none of an exported program")
        raise FrontendError("the graph has no output")

    def inlined(self, module: Any, operands: Sequence[Value]) -> Any:
        """The values of the outputs of a module of the graph for these inputs, emitted here."""
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        before = len(self.unsupported)
        self.env.update(zip(places, operands, strict=True))
        result = self.run(module.graph)
        if len(self.unsupported) > before:
            raise UnsupportedError("its graph has nodes that cannot be imported")
        return result

    def retrieve_args(self, node: Any) -> Any:
        """The values of the arguments of a node."""
        return self.values(node.args)

    def values(self, arguments: Any) -> Any:
        """Arguments of a node, with nodes in them as their values."""
        return torch.fx.node.map_aggregate(arguments, self._value)

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.env.get(argument)
        return self.symbols.expr(argument) if is_symbolic(argument) else argument

    def _attribute(self, graph: Any, node: Any) -> Any:
        value: Any = graph.owning_module
        for name in node.target.split("."):
            value = getattr(value, name)
        return self.value(value) if isinstance(value, torch.Tensor) else value

    def _convert(self, node: Any) -> None:
        if any(isinstance(self.env.get(operand), _Missing) for operand in node.all_input_nodes):
            self.env[node] = _Missing()
            return
        try:
            with self.builder.located(self._lines.span(node)):
                self._refresh(node)
                self.compute(node)
                self._changes.note(node, self)
            return
        except UnsupportedError as error:
            reason = str(error)
        except RelaxpyError as error:
            reason = error.diagnostics[0].message
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            reason = f"its arguments do not fit together: {error}"
        self._refuse(node, reason)

    def compute(self, node: Any) -> None:
        """Emit the operator of a node."""
        self.env[node] = self._bound(node, self._call(node))

    def _refresh(self, node: Any) -> None:
        for operand in node.all_input_nodes:
            self._changes.refresh(operand, self)

    def _refuse(self, node: Any, reason: str) -> None:
        self.env[node] = _Missing()
        self.refused.add(node.target)
        infos = tuple(_shown(operand, self.env.get(operand)) for operand in node.all_input_nodes)
        # One that changes arguments is the first argument of PyTorch's operator that copies them.
        named = next(filter(is_overload, (node.target, *node.args)), node.target)
        self.unsupported.append(UnsupportedNode(self._where(node), str(named), reason, infos))

    def _where(self, node: Any) -> str:
        """The name of a node, and the line of the user's program that it comes from."""
        span = self._lines.span(node)
        return str(node.name) if span is None else f"{node.name} ({span.file}:{span.line})"

    def _call(self, node: Any) -> Any:
        target, meta = node.target, node.meta.get("val")
        custom = self._custom(target)
        if custom is not None:
            value = custom(node, self)
            if value is None and meta is not None:
                raise UnsupportedError("its converter returned None")
            return value
        if target is operator.getitem:
            return self._item(*self.values(node.args))
        if is_symbolic(meta) and not is_overload(target):
            return self.symbols.expr(meta)
        name = target.name() if isinstance(target, torch._ops.HigherOrderOperator) else None
        if name is not None:
            convert = ops.HIGHER_ORDER.get(name)
            if convert is None:
                return self.applied(node, target, node.args, node.kwargs)
            return convert(Context(self, node), *self.values(node.args), **node.kwargs)
        if not is_overload(target):
            values = self.values(node.args)
            if any(isinstance(value, (rx.Expr, PrimExpr)) for value in _flat(values)):
                raise UnsupportedError("there is no converter for it")
            return target(*values)
        require_kernel(node, casts=self.casts)
        if target._schema.is_mutable:
            target = twin_of(target)
        return self.applied(node, target, node.args, node.kwargs)

    def applied(self, node: Any, target: Any, args: Any, kwargs: Any = MappingProxyType({})) -> Any:
        """The result of an operator applied to arguments, a tensor like the result of a node."""
        if target in self.options.simple or not is_converted(target):
            simpler = traced(target, args, kwargs, node.meta.get("val"), self._traced)
            if simpler is not None:
                return self._of_simpler(node, *simpler)
        args, kwargs = self.values(args), self.values(kwargs)
        if is_complex([*args, *kwargs.values()]) or has_complex_result(node.meta.get("val")):
            return convert_complex(Context(self, node), target, args, kwargs)
        entry = find(target)
        if entry is None:
            for item in _flat(node.meta.get("val")):
                if isinstance(item, torch.Tensor):
                    refuse_form(item)
            raise UnsupportedError("there is no converter for it")
        return Context(self, node).converted(entry, target, args, kwargs)

    def of_function(self, node: Any, function: Callable[..., Any], *operands: Any) -> Any:
        """The result of a function of PyTorch's operators, a tensor like the result of a node."""
        simpler = traced(function, operands, {}, node.meta["val"], self._traced)
        if simpler is None:
            raise UnsupportedError("PyTorch cannot trace how views are written into their memory")
        return self._of_simpler(node, *simpler)

    def _of_simpler(self, node: Any, module: Any, operands: Sequence[Any]) -> Any:
        """The results of the graph that computes a node."""
        for inner in module.graph.nodes:
            inner.meta["stack_trace"] = node.meta.get("stack_trace")
        before = len(self.unsupported)
        places = module.graph.find_nodes(op="placeholder")
        self.env.update(zip(places, map(self._value, operands), strict=True))
        result = self.run(module.graph)
        return result if len(self.unsupported) == before else _Missing()

    def _custom(self, target: Any) -> Callable[[Any, Importer], Any] | None:
        if not self.options.custom or not is_overload(target):
            return None
        custom = self.options.custom
        return next((custom[name] for name in names_of(target) if name in custom), None)

    def _item(self, value: Any, index: int) -> Any:
        return rx.TupleGetItem(value, index) if isinstance(value, rx.Expr) else value[index]

    def _bound(self, node: Any, value: Any) -> Any:
        """The results of a node as variables, of the datatypes and shapes that PyTorch says."""
        meta = node.meta.get("val")
        if isinstance(value, (tuple, list)) and isinstance(meta, (tuple, list)):
            pairs = zip(value, meta, strict=False)
            return type(value)(
                self.variable(f"{node.name}_{k}", item, m) for k, (item, m) in enumerate(pairs)
            )
        return self.variable(node.name, value, meta)

    def variable(self, name: str, value: Any, meta: Any) -> Any:
        """A value as a variable, of the datatype and the shape that PyTorch says."""
        if isinstance(value, Complex):
            parts = {"real": value.re, "imag": value.im}
            re, im = (self.variable(f"{name}_{k}", x, meta) for k, x in parts.items())
            return Complex(re, im, value.pair if dtype_of(re) == dtype_of(value.re) else None)
        if not isinstance(value, rx.Expr):
            return value
        if isinstance(meta, torch.Tensor) and isinstance(value.struct_info, rx.TensorStructInfo):
            dtype = part_name(meta.dtype)
            if dtype_of(value) != dtype:
                value = cast(value, dtype)
            # PyTorch states a wrong rank for a few operators, so ours decides.
            same_rank = value.struct_info.ndim in (-1, len(meta.shape))
            unknown = [s for size in meta.shape for s in self.symbols.unknown(size)]
            if same_rank and (unknown or value.struct_info.shape is None):
                for symbol in unknown:
                    self.symbols.known[symbol] = self.symbols.new(str(symbol))
                sizes = [self.symbols.expr(size) for size in meta.shape]
                return self.builder.match_cast(
                    self.builder.emit(value, name), tensor_of(sizes, dtype), name
                )
        return value if isinstance(value, (rx.Var, rx.Constant)) else self.builder.emit(value, name)


def imported(
    program: Program, options: Options, name: str, mod: IRModule | None = None
) -> tuple[Importer, IRModule]:
    """The importer of a program, and the module with its function and those of `mod`.

    Operators whose converters refuse their arguments are decomposed, and the import begins again.
    So it does where a decomposition is right only under conditions, which then are checked first.

    Errors:
        OpNotImplemented: nodes cannot be imported; the error lists all of them.
    """
    while True:
        importer = Importer(program, options, BlockBuilder(mod))
        before = program.conditions.count
        try:
            made = importer.module(name)
            if program.conditions.count == before:
                return importer, made
        except OpNotImplemented:
            more = set(filter(is_decomposed, importer.refused)) - options.simple
            if not more:
                raise
            options = replace(options, simple=options.simple | more)


def _sizes_of(item: Input) -> tuple[Any, ...]:
    if isinstance(item.meta, torch.Tensor):
        return tuple(item.meta.shape)
    return () if isinstance(item.meta, torch.Generator) else (item.meta,)


def _of_input(item: Input, make: Callable[[Input], _T]) -> _T:
    """The result of `make` for an input."""
    try:
        return make(item)
    except UnsupportedError as error:
        raise FrontendError(f"the input {item.name!r} cannot be imported: {error}") from None


def _flat(values: Any) -> list[Any]:
    if isinstance(values, (tuple, list)):
        return [item for value in values for item in _flat(value)]
    return [values]


def _shown(node: Any, value: Any) -> str:
    info = value.struct_info if isinstance(value, rx.Expr) else value
    if isinstance(value, torch.nn.Module):
        info = "a graph"
    meta = node.meta.get("val") if isinstance(value, _Missing) else None
    return f"{node.name}: {meta if meta is not None else info}"


_CONVOLUTIONS = tuple(f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3))
#: Operators that are for floats only: rounded to integers, they mean nothing.
_OF_FLOATS = frozenset(
    {
        *("softmax", "_softmax", "log_softmax", "_log_softmax", "gelu", "silu", "mish", "glu"),
        *("elu", "selu", "celu", "softplus", "hardswish", "hardsigmoid", "log_sigmoid", "var"),
        *("std", "var_mean", "std_mean", "layer_norm", "group_norm", "frac", "lerp"),
        *("logcumsumexp", "smooth_l1_loss", "binary_cross_entropy", "nll_loss", "nll_loss_nd"),
        *("nll_loss2d", "nll_loss_forward", "upsample_linear1d", "upsample_trilinear3d"),
        *("binary_cross_entropy_with_logits", "huber_loss", "leaky_relu", "hardshrink", "hypot"),
        *("logaddexp", "logaddexp2", "igamma", "igammac", "special_gammainc", "special_gammaincc"),
        *("cholesky", "cholesky_inverse", "cholesky_solve", "triangular_solve", "linalg_eigh"),
        *("linalg_eigvalsh", "linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex"),
        *("_lu_with_info", "nextafter", "bernoulli", "multinomial", "normal", "poisson"),
        *("grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "prelu", "_prelu_kernel"),
        *("embedding_bag", "_embedding_bag"),
    }
)
#: Those that are for uint8, too.
_OF_IMAGES = frozenset(f"upsample_{kind}2d" for kind in ("nearest", "bilinear", "bicubic"))
#: Those that are for all numbers, but not for Booleans.
_OF_NUMBERS = frozenset(
    {
        *("mm", "bmm", "matmul", "addmm", "_sparse_addmm", "baddbmm", "mv", "dot", "linear"),
        *("einsum", "ceil", "addmv", "addbmm", "vdot", "linalg_cross", "convolution"),
        *("conv_tbc", *_CONVOLUTIONS),
        *("floor", "round", "trunc", "abs", "relu", "threshold", "median", "topk", "argmax"),
        *("argmin", "nanmedian", "fmod", "remainder", "tensordot", "linalg_matmul", "trace"),
    }
)
#: Operands that must have the datatype of the first operand.
_LIKE_FIRST = {
    **dict.fromkeys(("index_add", "index_copy"), ("source",)),
    "index_put": ("values",),
    **dict.fromkeys(("layer_norm", "group_norm"), ("weight", "bias")),
    **dict.fromkeys(("batch_norm", "instance_norm"), ("weight", "bias", "running_mean")),
    **dict.fromkeys(("linear", "conv_tbc", *_CONVOLUTIONS), ("weight", "bias")),
    # To these, PyTorch adds a bias of any datatype.
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "convolution"), ("weight",)),
    **dict.fromkeys(("matmul", "linalg_matmul", "linalg_cross"), ("other",)),
    **dict.fromkeys(("addmm", "_addmm_activation"), ("mat1", "mat2")),
    "mm": ("mat2",),
    "mv": ("vec",),
    "addbmm": ("batch1", "batch2"),
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), ("grid",)),
    **dict.fromkeys(("embedding_bag", "_embedding_bag"), ("per_sample_weights",)),
}
#: Those that write a number, which has to be one of the datatype of the result.
_FILLING = frozenset(
    {
        *("fill", "full", "full_like", "new_full", "masked_fill", "index_fill", "scatter"),
        *("constant_pad_nd", "pad"),
    }
)


def require_kernel(node: Any, *, casts: bool) -> None:
    """Check that PyTorch has a kernel for the operator of a node and its operands.

    With `casts`, it converts operands of several datatypes first, as `torch.autocast` does.

    Errors:
        UnsupportedError: it does not.
    """
    schema = node.target._schema
    name = schema.name.rpartition(":")[2].rstrip("_")
    pairs = zip((argument.name for argument in schema.arguments), node.args, strict=False)
    args: dict[str, Any] = {**dict(pairs), **node.kwargs}
    result = _tensor(node.meta.get("val"))
    first = next(filter(None, map(_dtype, args.values())), None)
    dtype = None if result is None else result.dtype
    # The result of softmax may be of another datatype, and remainders convert their operands to it.
    if first is not None and "softmax" not in name and name not in ("fmod", "remainder"):
        _require_kind(name, first)
    elif dtype is not None:
        _require_kind(name, dtype)
    for other in (_dtype(args.get(part)) for part in _LIKE_FIRST.get(name, ())):
        is_wide = "norm" in name and other is torch.float32 and first in _NARROW
        if other not in (None, first) and not is_wide and not casts:
            raise UnsupportedError(
                f"PyTorch has it for operands of one datatype, found {part_name(first)} and "
                f"{part_name(other)}"
            )
    if dtype is not None:
        _require_numbers(name, args, dtype)


_NARROW = (torch.float16, torch.bfloat16)


def _require_kind(name: str, dtype: Any) -> None:
    is_whole = not (dtype.is_floating_point or dtype.is_complex)
    kinds = None
    if name in _OF_FLOATS and is_whole:
        kinds = "floats"
    elif name in _OF_IMAGES and is_whole and dtype is not torch.uint8:
        kinds = "floats and uint8"
    elif name in _OF_NUMBERS and dtype is torch.bool:
        kinds = "numbers"
    if kinds is not None:
        raise UnsupportedError(f"PyTorch has it for {kinds} only, found {part_name(dtype)}")


def _require_numbers(name: str, args: Mapping[str, Any], dtype: Any) -> None:
    is_whole = not (dtype.is_floating_point or dtype.is_complex)
    if name in ("clamp", "clamp_min", "clamp_max") and is_whole:
        for bound in (args.get("min"), args.get("max")):
            if isinstance(bound, int) and not _is_number_of(bound, dtype):
                raise UnsupportedError(f"the bound {bound} is out of range for {part_name(dtype)}")
    if name in _FILLING:
        value = args.get("value", args.get("fill_value"))
        if isinstance(value, (int, float)) and not _is_number_of(value, dtype):
            raise UnsupportedError(f"the value {value} is out of range for {part_name(dtype)}")
    exponent = args.get("exponent")
    if name == "pow" and is_whole and isinstance(exponent, int) and exponent < 0:
        raise UnsupportedError("PyTorch has no negative powers of integers")
    if name == "smooth_l1_loss" and args.get("beta", 1.0) < 0:
        raise UnsupportedError("PyTorch has no smooth_l1_loss of a negative beta")


def _is_number_of(value: float, dtype: Any) -> bool:
    """True if PyTorch converts a number to a datatype: infinity to a float, not to an integer."""
    if dtype.is_complex or dtype is torch.bool:
        return True
    if dtype.is_floating_point:
        return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    info = torch.iinfo(dtype)
    # Negative values of unsigned integers wrap around.
    return math.isfinite(value) and min(info.min, -info.max) <= value <= info.max


def _tensor(value: Any) -> Any:
    """A tensor, or the first one of several, without elements; None if it is something else."""
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    return first if isinstance(first, torch.Tensor) else None


def _dtype(argument: Any) -> Any:
    """The datatype of an argument that is a tensor, or of the first of several; or None."""
    if isinstance(argument, (tuple, list)) and argument:
        return _dtype(argument[0])
    found = _tensor(argument.meta.get("val")) if isinstance(argument, torch.fx.Node) else None
    return None if found is None else found.dtype
