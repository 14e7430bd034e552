"""Rewrites emitted calls so that they cost less for small arrays, and read shorter."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import numpy as np

from relaxpy.exec.python_ast import nodes_in, path
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IntImm

_ELEMENTWISE = ("at_least", "at_most", "clip", "rsqrt", "sigmoid")
"""Functions of the runtime that broadcast their operands to `out`, as ufuncs do."""
_NAMED_OUTPUT = ("maximum", "minimum")
"""NumPy warns of an output that is their third positional argument."""


def concise(lines: Sequence[ast.stmt], buffers: Mapping[str, Buffer]) -> list[ast.stmt]:
    """The lines, with whole arrays in place of their only element along leading axes.

    `np.add(x[0, 0], y[0, 0], out=z[0, 0])` is `np.add(x, y, z)` if these axes have size 1: an index
    costs a quarter of the time of a call on a small array, and naming the argument `out` a fifth.
    `buffers` are the arrays by name.
    """
    for node in nodes_in(lines):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            _shorten(node.value, buffers)
    return list(lines)


def output_of(call: ast.Call) -> tuple[ast.expr, list[ast.expr]] | None:
    """The array that an elementwise call of a ufunc writes, and its operands."""
    ufunc = ufunc_of(call)
    if ufunc is None or ufunc.signature is not None or ufunc.nout != 1:
        return None
    match call:
        case ast.Call(args=args, keywords=[ast.keyword(arg="out", value=out)]):
            return (out, args) if len(args) == ufunc.nin else None
        case ast.Call(args=[*args, out], keywords=[]):
            return (out, args) if len(args) == ufunc.nin else None
        case _:
            return None


def ufunc_of(call: ast.Call) -> np.ufunc | None:
    """The ufunc of NumPy that is called."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="np"), attr=name):
            function = getattr(np, name, None)
            return function if isinstance(function, np.ufunc) else None
        case _:
            return None


def _shorten(call: ast.Call, buffers: Mapping[str, Buffer]) -> None:
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="rt"), attr=name),
            keywords=[ast.keyword(arg="out") as output],
        ) if name in _ELEMENTWISE:
            _without_units(call.args, output, 0, buffers)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="np"), attr="vecdot"),
            keywords=[ast.keyword(arg="out") as output],
        ):
            _without_units(call.args, output, 1, buffers)
        case ast.Call(func=ast.Attribute(attr="reduce"), args=[operand]):
            _whole_reduction(call, operand, buffers)
        case ast.Call(keywords=[ast.keyword(arg="out") as output]) if output_of(call) is not None:
            _without_units(call.args, output, 0, buffers)
            if call.func.attr not in _NAMED_OUTPUT:  # type: ignore[attr-defined]
                call.args.append(output.value)
                call.keywords.clear()


def _without_units(
    args: list[ast.expr], output: ast.keyword, summed: int, buffers: Mapping[str, Buffer]
) -> None:
    """Replace the output and the operands by whole arrays, if these have as many axes.

    The operands have up to `summed` axes more than the output. NumPy takes twice the time for
    operands of another rank, which it broadcasts.
    """
    out = _whole(output.value, buffers)
    if out is None:
        return
    wholes = [_whole(arg, buffers) for arg in args]
    rank = buffers[out].ndim + summed
    if any(name is not None and buffers[name].ndim != rank for name in wholes):
        return
    output.value = path(out)
    args[:] = [arg if n is None else path(n) for arg, n in zip(args, wholes, strict=True)]


def _whole_reduction(call: ast.Call, operand: ast.expr, buffers: Mapping[str, Buffer]) -> None:
    """Replace the operand and the output of a reduction, if both lose as many axes."""
    keywords = {keyword.arg: keyword for keyword in call.keywords}
    output, axis = keywords.get("out"), keywords.get("axis")
    if output is None or axis is None or "where" in keywords:
        return
    axes = axis.value.elts if isinstance(axis.value, ast.Tuple) else [axis.value]
    if not all(isinstance(a, ast.UnaryOp) and isinstance(a.op, ast.USub) for a in axes):
        return
    source, target = _whole(operand, buffers), _whole(output.value, buffers)
    if source is None or target is None or _lost(operand) != _lost(output.value):
        return
    call.args[0], output.value = path(source), path(target)


def _whole(node: ast.expr, buffers: Mapping[str, Buffer]) -> str | None:
    """The array that `node` is, or whose only element along leading axes of size 1 it is."""
    match node:
        case ast.Name(id=name) if name in buffers:
            return name
        case ast.Subscript(value=ast.Name(id=name)) if name in buffers:
            shape = buffers[name].shape
        case _:
            return None
    indices = _indices(node)
    for size, index in zip(shape, indices, strict=False):
        if not isinstance(size, IntImm) or size.value != 1:
            return None
        if not isinstance(index, ast.Constant) or type(index.value) is not int:
            return None
    return name if 0 < len(indices) <= len(shape) else None


def _indices(node: ast.Subscript) -> list[ast.expr]:
    """The indices, without `...` at the end."""
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    *others, last = indices or [ast.Constant(...)]
    return others if isinstance(last, ast.Constant) and last.value is ... else indices


def _lost(node: ast.expr) -> int:
    return len(_indices(node)) if isinstance(node, ast.Subscript) else 0
