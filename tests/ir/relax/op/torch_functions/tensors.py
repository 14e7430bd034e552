"""Operators that move, select, combine and order elements, by PyTorch."""

from __future__ import annotations

from typing import Any

from tests.ir.relax.op.torch_functions.base import NoCounterpartError, Table, of_dtype, torch, vjp

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin", "mean": "mean"}


def _wrapped(indices: Any, size: int) -> Any:
    return torch.where(indices < 0, indices + size, indices).long()


def _scatter_elements(data: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    indices = _wrapped(indices, data.shape[axis])
    if reduction == "update":
        return data.scatter(axis, indices, updates)
    return data.scatter_reduce(axis, indices, updates, _REDUCTIONS[reduction])


def _flat_positions(indices: Any, sizes: Any) -> Any:
    """The positions along the first axis of data with its first axes joined."""
    flat = torch.zeros(indices.shape[:-1], dtype=torch.long)
    for k, size in enumerate(sizes):
        flat = flat * size + _wrapped(indices[..., k], size)
    return flat


def _scatter_nd(data: Any, indices: Any, updates: Any, reduction: str) -> Any:
    count = indices.shape[-1]
    positions = _flat_positions(indices, data.shape[:count]).reshape(-1)
    rest = data.shape[count:]
    lines, parts = data.reshape(-1, rest.numel()), updates.reshape(-1, rest.numel())
    if 0 in lines.shape:
        raise NoCounterpartError("empty data")
    where = positions[:, None].expand(parts.shape)
    return _scatter_elements(lines, where, parts, 0, reduction).reshape(data.shape)


def _index_put(data: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    return data.index_put(tuple(i.long() for i in indices), values, accumulate)


def _gather_nd(data: Any, indices: Any, batch_dims: int) -> Any:
    if batch_dims:
        found = [_gather_nd(x, i, batch_dims - 1) for x, i in zip(data, indices, strict=True)]
        if not found:
            raise NoCounterpartError("an empty batch")
        return torch.stack(found)
    count = indices.shape[-1]
    lines = data.reshape(-1, *data.shape[count:]) if count else data[None]
    return lines[_flat_positions(indices, data.shape[:count])]


def _take(x: Any, indices: Any, axis: int | None, mode: str) -> Any:
    indices = torch.as_tensor(indices).long()
    axis = axis or 0
    size = x.shape[axis]
    if mode == "wrap":
        indices = indices % max(size, 1)
    if mode == "clip":
        indices = indices.clamp(0, size - 1)
    out = x.index_select(axis, indices.flatten())
    axis %= x.ndim
    return out.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _positions(size: int, begin: int, end: int, step: int) -> Any:
    return torch.tensor(range(size)[slice(begin, end, step)], dtype=torch.long)


def _strided_slice(
    x: Any, axes: Any, begin: Any, end: Any, strides: Any = None, *, assume_inbound: bool
) -> Any:
    for axis, a, b, step in zip(axes, begin, end, strides or [1] * len(axes), strict=True):
        if step < 0:  # from beyond the end; Python has no number for "before the first"
            size = x.shape[axis]
            a, b = (n + size if n < 0 else n for n in (a, b))
            picked = [k for k in range(min(a, size - 1), max(b, -1), step) if k >= 0]
            x = x.index_select(axis, torch.tensor(picked, dtype=torch.long))
        else:
            x = x.index_select(axis, _positions(x.shape[axis], a, b, step))
    return x


def _dynamic_strided_slice(x: Any, begin: Any, end: Any, strides: Any) -> Any:
    for axis, bounds in enumerate(zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True)):
        x = x.index_select(axis, _positions(x.shape[axis], *bounds))
    return x


def _slice_scatter(x: Any, src: Any, start: int, end: int, step: int, axis: int) -> Any:
    return torch.slice_scatter(x, src, axis, start, end, step)


def _topk(x: Any, k: int, axis: int, ret_type: str, largest: bool, dtype: Any) -> Any:
    """PyTorch's topk keeps no order of equal elements; its stable sort does."""
    values, indices = torch.sort(x, dim=axis, descending=largest, stable=True)
    k = min(k, x.shape[axis]) if k > 0 else x.shape[axis]
    found = values.narrow(axis, 0, k), indices.narrow(axis, 0, k)
    return found if ret_type == "both" else found[ret_type == "indices"]


def _sort(x: Any, axis: int, descending: bool) -> Any:
    return torch.sort(x, dim=axis, descending=descending, stable=True)[0]


def _argsort(x: Any, axis: int, descending: bool, dtype: Any) -> Any:
    return torch.argsort(x, dim=axis, descending=descending, stable=True)


def _unique(
    x: Any, return_index: bool, return_inverse: bool, return_counts: bool, axis: Any, **attrs: Any
) -> Any:
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True, dim=axis)
    out = [values]
    if return_index:
        flat = inverse.flatten()
        first = torch.full((len(counts),), len(flat), dtype=torch.long)
        out.append(first.scatter_reduce(0, flat, torch.arange(len(flat)), "amin"))
    if return_inverse:
        out.append(inverse.flatten())
    if return_counts:
        out.append(counts)
    return out[0] if len(out) == 1 else tuple(out)


def _repeat(x: Any, repeats: int, axis: int | None) -> Any:
    return torch.repeat_interleave(x, repeats, dim=axis)


def _roll(x: Any, shift: Any, axis: Any) -> Any:
    return torch.roll(x, shift, axis) if axis is not None else torch.roll(x, shift)


def _one_hot(indices: Any, on: Any, off: Any, depth: int, axis: int) -> Any:
    positions = torch.arange(depth)
    found = (indices[..., None] == positions).movedim(-1, axis)
    return torch.where(found, torch.as_tensor(on), torch.as_tensor(off))


def _split(x: Any, indices_or_sections: Any, axis: int) -> Any:
    if isinstance(indices_or_sections, int):
        n = x.shape[axis]
        size = -(-n // indices_or_sections)
        bounds = [min(k * size, n) for k in range(1, indices_or_sections)]
    else:
        bounds = list(indices_or_sections)
    return torch.tensor_split(x, bounds, axis)


def _collapse(x: Any, target: Any) -> Any:
    return x.sum_to_size(tuple(target.shape if isinstance(target, torch.Tensor) else target))


def _matmul(x: Any, y: Any, out_dtype: Any) -> Any:
    dtype = of_dtype(out_dtype, x.dtype)
    return torch.matmul(x.to(dtype), y.to(dtype))


def _recurrence(factors: Any, terms: Any, axis: int, transposed: bool, exclusive: bool) -> Any:
    f, t = factors.movedim(axis, 0), terms.movedim(axis, 0)
    n = len(t)
    if not n:
        return terms
    out: list[Any] = [None] * n
    state = torch.zeros_like(t[0])
    for k in range(n)[:: -1 if transposed else 1]:
        if transposed:
            out[k] = state if exclusive else t[k] + state
            state = f[k] * (state if exclusive else out[k]) + (t[k] if exclusive else 0)
        else:
            out[k] = state if exclusive else t[k] + f[k] * state
            state = t[k] + f[k] * state
    return torch.stack(out).movedim(0, axis)


def _quantize(x: Any, scale: Any, zero: Any, axis: int, out_dtype: Any) -> Any:
    if "float" in str(out_dtype):
        raise NoCounterpartError("floats of 8 bits")
    bounds = torch.iinfo(of_dtype(out_dtype))
    scale, zero = (_parameter(p, x, axis) for p in (scale, zero))
    return torch.clamp(torch.round(x / scale) + zero, bounds.min, bounds.max)


def _parameter(p: Any, x: Any, axis: int) -> Any:
    if p.numel() == 1:
        return p.reshape(())
    return p.reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])


def _dequantize(x: Any, scale: Any, zero: Any, axis: int, out_dtype: Any) -> Any:
    if "float16" in str(out_dtype):
        raise NoCounterpartError("results that are cut to the range")
    scale, zero = (_parameter(p, x, axis) for p in (scale, zero))
    return (x.double() - zero.double()) * scale.double()


def _bucketize(x: Any, boundaries: Any, out_int32: bool, right: bool) -> Any:
    return torch.bucketize(x, boundaries, out_int32=out_int32, right=right)


def _multinomial(prob: Any, uniform: Any, rows: Any, dtype: Any) -> Any:
    sums = torch.cumsum(prob, 1)[rows[:, 0].long()]
    found = torch.searchsorted(sums, uniform, right=True)
    return found.clamp(max=prob.shape[1] - 1)


def _triangle(name: str) -> Any:
    return lambda x, k: getattr(torch, name)(x, k)


TABLE: Table = {
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "index_put": _index_put,
    "index_tensor": lambda x, indices: x[tuple(i.long() for i in indices)],
    "gather_elements": lambda x, i, axis: torch.gather(x, axis, i.long()),
    "gather_nd": _gather_nd,
    "take": _take,
    "grad.take_backward": lambda g, x, i, axis: vjp(lambda v: _take(v, i, axis, "fast"), g, x),
    "strided_slice": _strided_slice,
    "dynamic_strided_slice": _dynamic_strided_slice,
    "slice_scatter": _slice_scatter,
    "sort": _sort,
    "argsort": _argsort,
    "topk": _topk,
    "unique": _unique,
    "nonzero": lambda x: torch.nonzero(torch.atleast_1d(x)).T,
    "bucketize": _bucketize,
    "multinomial_from_uniform": _multinomial,
    "repeat": _repeat,
    "tile": lambda x, repeats: torch.tile(x, tuple(repeats)),
    "flip": lambda x, axis: torch.flip(x, [axis]),
    "roll": _roll,
    "meshgrid": lambda tensors, indexing: tuple(torch.meshgrid(*tensors, indexing=indexing)),
    "one_hot": _one_hot,
    "triu": _triangle("triu"),
    "tril": _triangle("tril"),
    "concat": lambda tensors, axis: torch.cat(
        [t.flatten() for t in tensors] if axis is None else list(tensors), axis or 0
    ),
    "stack": lambda tensors, axis: torch.stack(list(tensors), axis),
    "split": _split,
    "reshape": lambda x, shape: x.reshape(tuple(shape)),
    "flatten": lambda x: x.flatten(),
    "nn.batch_flatten": lambda x: x.flatten(1),
    "size": lambda x: torch.tensor(x.numel()),
    "expand_dims": lambda x, axis: _expanded(x, axis),
    "squeeze": lambda x, axis: x.squeeze() if axis is None else x.squeeze(tuple(axis)),
    "permute_dims": lambda x, axes: x.permute(tuple(axes or reversed(range(x.ndim)))),
    "broadcast_to": lambda x, shape: x.expand(tuple(shape)),
    "collapse_sum_to": _collapse,
    "collapse_sum_like": _collapse,
    "matmul": _matmul,
    "outer": lambda x, y: torch.outer(x, y),
    "einsum": lambda operands, subscripts: torch.einsum(subscripts, *operands),
    "grad.cumprod_backward": lambda g, x, axis, exclusive: vjp(
        lambda v: _cumprod(v, axis, exclusive), g, x
    ),
    "grad.linear_recurrence": _recurrence,
    "quantize": _quantize,
    "dequantize": _dequantize,
    "grad.no_grad": lambda x: x.detach(),
    **{f"grad.{n}_checkpoint": lambda x: x for n in ("start", "end")},
}


def _expanded(x: Any, axis: Any) -> Any:
    count = x.ndim + len(axis)
    for k in sorted(a % count for a in axis):
        x = x.unsqueeze(k)
    return x


def _cumprod(x: Any, axis: int, exclusive: bool) -> Any:
    out = torch.cumprod(x, axis)
    if not exclusive or not x.shape[axis]:
        return out
    first = torch.ones_like(x.narrow(axis, 0, 1))
    return torch.cat([first, out.narrow(axis, 0, x.shape[axis] - 1)], axis)
