"""Convolutions whose weights were transformed before: by Winograd's algorithm, or into tiles.

The transform of a weight and the convolution that reads it are separate operators, so that a
compiler computes the first before the program runs.

Rule:
    Lavin & Gray, "Fast algorithms for convolutional neural networks", CVPR '16; the points of
    interpolation are those of Barabasz et al., ACM TOMS 46(4), 2020.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import Args, define, dtype_of, known_shape, listed
from relaxpy.ir.relay.op.nn import CONVOLUTION_2D, CONVOLUTION_3D
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.relay.op.signal import sliced

Matrix: TypeAlias = np.ndarray[Any, Any]
_FEW: Final = (0, -1, 1, 1 / 2, -2, -1 / 2)
_MANY: Final = (0, -1, 1, 1 / 2, -1 / 2, 2, -2, -1 / 4)
_MORE: Final[dict[int, tuple[float, ...]]] = {
    9: (4,),
    10: (3 / 4, -4 / 3),
    11: (4, 3 / 4, -4 / 3),
    12: (4, 3 / 4, -4 / 3, 1 / 4),
    13: (4, 1 / 4, -3 / 4, 4 / 3, -4),
}


def _points(count: int) -> Matrix:
    """Return the points of interpolation: those of TVM, so that transformed weights agree."""
    known = _FEW if count <= len(_FEW) else _MANY
    return np.array([*known[:count], *_MORE.get(count, ())])


def winograd_matrices(tile: int, kernel: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return the matrices A, B, G: `A.T @ ((G @ g) * (B.T @ d))` convolves d with g.

    Shapes:
        A  (tile + kernel - 1, tile)
        B  (tile + kernel - 1, tile + kernel - 1)
        G  (tile + kernel - 1, kernel)
    Errors:
        RelationError: a size is not between 2 and 8, or the kernel not between 3 and 7.
    Rule:
        Both polynomials are evaluated at points, and one at infinity; B interpolates.
    """
    if not 2 <= tile <= 8 or not 3 <= kernel <= 7:
        raise RelationError(
            "tile_size is between 2 and 8, and the kernel between 3 and 7, "
            f"found {tile} and {kernel}"
        )
    size = tile + kernel - 1
    points = _points(size - 1)
    differences = points[:, None] - points + np.eye(size - 1)
    scales = differences.prod(1)
    scales[0] = abs(scales[0])

    def powers(count: int) -> Matrix:
        at_infinity = np.eye(1, count, count - 1)
        return np.concatenate([points[:, None] ** np.arange(count), at_infinity])

    a, g = powers(tile), powers(kernel)
    g[:-1] /= scales[:, None]
    whole = np.poly(points)[::-1]  # of all points, the constant first
    b = np.zeros((size, size))
    for k in range(size - 1):
        b[:-1, k] = np.poly(np.delete(points, k))[::-1]
    b[:, 0] *= np.sign(differences[0].prod())
    b[:, -1] = whole
    return a, b, g


def _along(matrix: Matrix, data: rx.Expr, axis: int) -> rx.Expr:
    """Return the products of a matrix and the vectors along an axis."""
    rank = len(known_shape(data))
    last = [k for k in range(rank) if k != axis] + [axis]
    turned = R.permute_dims(data, last)
    product = R.matmul(turned, rx.Constant(matrix.T.astype(dtype_of(data))))
    back = [last.index(k) for k in range(rank)]
    return R.permute_dims(product, back)


def _square(shape: list[int], axes: list[int]) -> int:
    sizes = {shape[axis] for axis in axes}
    if len(sizes) != 1:
        raise RelationError(f"the kernel has the same size on all axes, found {shape}")
    return sizes.pop()


def _axes_of_weight(shape: list[int]) -> list[int]:
    """Return the axes that are transformed; a depth of less than 3 is not."""
    axes = list(range(2, len(shape)))
    return axes if len(axes) == 2 or 2 < shape[2] < 8 else axes[1:]


def _transformed(weight: rx.Expr, tile: int, rank: int) -> rx.Expr:
    """Return a weight (out, in, …) in the domain of the products: (…, out, in)."""
    shape = known_shape(weight)
    if len(shape) != rank + 2:
        raise RelationError(f"the weight has {rank + 2} dimensions, found {weight.struct_info}")
    axes = _axes_of_weight(shape)
    _, _, matrix = winograd_matrices(tile, _square(shape, axes))
    for axis in axes:
        weight = _along(matrix, weight, axis)
    others = [axis for axis in range(2, rank + 2) if axis not in axes]
    return R.permute_dims(weight, [*axes, *others, 0, 1])


for _rank in (2, 3):
    define(
        f"nn.contrib_conv{_rank}d_winograd_weight_transform",
        "weight",
        lambda args, attrs, rank=_rank: _transformed(args[0], int(attrs["tile_size"]), rank),  # type: ignore[misc]
        {"tile_size": REQUIRED},
    )


def _nnpack(args: Args, attrs: Any) -> rx.Expr:
    """The transform of tiles of 6 by 6, with the channels first."""
    shape = known_shape(args[0])
    if len(shape) != 4 or shape[2:] != [3, 3]:
        raise RelationError(
            f"the weight has the shape (out, in, 3, 3), found {args[0].struct_info}"
        )
    weight = R.permute_dims(_transformed(args[0], 6, 2), [2, 3, 0, 1])
    return R.astype(weight, str(attrs["out_dtype"]) or dtype_of(args[0]))


define(
    "nn.contrib_conv2d_winograd_nnpack_weight_transform",
    "weight",
    _nnpack,
    {"convolution_algorithm": REQUIRED, "out_dtype": ""},
)


# Convolutions


def _sides(attrs: Any, rank: int) -> list[tuple[int, int]]:
    """Return the padding before and after each axis."""
    sizes = [int(size) for size in listed(attrs["padding"])]
    sizes = sizes * rank if len(sizes) == 1 else sizes
    sizes = sizes * 2 if len(sizes) == rank else sizes
    if len(sizes) != 2 * rank:
        raise RelationError(f"padding has 1, {rank} or {2 * rank} numbers, found {len(sizes)}")
    return list(zip(sizes[:rank], sizes[rank:], strict=True))


def _channels_first(data: rx.Expr, layout: str, rank: int) -> rx.Expr:
    """Return data with the channels before the axes of the image.

    Errors:
        RelationError: the layout is not such an order of axes.
    """
    wanted = "NC" + "DHW"[3 - rank :]
    if sorted(layout) != sorted(wanted):
        raise RelationError(f"the layout is an order of {wanted}, found {layout!r}")
    order = [layout.index(axis) for axis in wanted]
    return data if order == sorted(order) else R.permute_dims(data, order)


def _in_layout(data: rx.Expr, layout: str, rank: int) -> rx.Expr:
    wanted = "NC" + "DHW"[3 - rank :]
    _channels_first(data, layout, rank)
    order = [wanted.index(axis) for axis in layout]
    return data if order == sorted(order) else R.permute_dims(data, order)


def _padded(data: rx.Expr, sides: list[tuple[int, int]]) -> rx.Expr:
    widths = [0, 0, 0, 0, *(size for pair in sides for size in pair)]
    return R.nn.pad(data, widths, "constant", 0.0) if any(widths) else data


def _tiled(data: rx.Expr, axis: int, tile: int, kernel: int) -> rx.Expr:
    """Return the overlapping pieces along an axis: it becomes two, their number and their size."""
    size = known_shape(data)[axis] - kernel + 1
    count = -(-size // tile)
    rank = len(known_shape(data))
    widths = [0] * (2 * rank)
    widths[2 * axis + 1] = count * tile - size
    data = R.nn.pad(data, widths, "constant", 0.0)
    places = np.arange(count)[:, None] * tile + np.arange(tile + kernel - 1)
    return R.take(data, rx.Constant(places), axis)


def _winograd(args: Args, attrs: Any, rank: int) -> rx.Expr:
    tile, out_layout = int(attrs["tile_size"]), attrs["out_layout"] or attrs["data_layout"]
    for name in ("strides", "dilation", "groups"):
        if any(value != 1 for value in listed(attrs[name])):
            raise RelationError(f"{name} is 1, found {attrs[name]}")
    if attrs["kernel_size"] is None or attrs["channels"] is None:
        raise RelationError("kernel_size and channels are given: a transformed weight hides them")
    kernel = [int(size) for size in listed(attrs["kernel_size"])]
    if len(kernel) != rank:
        raise RelationError(f"kernel_size has {rank} numbers, found {len(kernel)}")
    data = _channels_first(args[0], attrs["data_layout"], rank)
    data, weight = _padded(data, _sides(attrs, rank)), args[1]
    shape = known_shape(data)
    weight_axes = _axes_of_weight([0, 0, *kernel])
    sides = _square([0, 0, *kernel], weight_axes)
    _, b, _ = winograd_matrices(tile, sides)
    expected = [len(b)] * len(weight_axes)
    expected += [*kernel[: rank - len(weight_axes)], int(attrs["channels"]), shape[1]]
    if known_shape(weight) != expected:
        raise RelationError(
            f"the transformed weight has the shape {tuple(expected)}, found {weight.struct_info}"
        )
    sizes = [size - k + 1 for size, k in zip(shape[2:], kernel, strict=True)]
    if len(weight_axes) < rank:  # layers of a depth that is not transformed are channels and images
        return _in_layout(_of_layers(data, weight, kernel[0], tile, sizes), out_layout, rank)
    return _in_layout(_products(data, weight, tile, sizes), out_layout, rank)


def _products(data: rx.Expr, weight: rx.Expr, tile: int, sizes: list[int]) -> rx.Expr:
    """Return the convolution of padded data (images, in, …) and a weight (…, out, in)."""
    rank = len(sizes)
    images, inner = known_shape(data)[:2]
    outer, kernel = known_shape(weight)[-2], known_shape(weight)[0] - tile + 1
    a, b, _ = winograd_matrices(tile, kernel)
    for k in range(rank):
        data = _along(b.T, _tiled(data, 2 + 2 * k, tile, kernel), 3 + 2 * k)
    counts = [-(-size // tile) for size in sizes]
    places = [3 + 2 * k for k in range(rank)]
    rest = [0, *(2 + 2 * k for k in range(rank))]
    turned = R.permute_dims(data, [*places, 1, *rest])
    columns = images * int(np.prod(counts))
    flat = R.reshape(turned, (*[len(b)] * rank, inner, columns))
    product: rx.Expr = R.matmul(weight, flat)
    product = R.reshape(product, (*[len(b)] * rank, outer, images, *counts))
    for k in range(rank):
        product = _along(a.T, product, k)
    # (tiles…, out, images, counts…) -> (images, out, count, tile, …)
    order = [rank + 1, rank]
    for k in range(rank):
        order += [rank + 2 + k, k]
    whole = R.permute_dims(product, order)
    whole = R.reshape(whole, (images, outer, *(count * tile for count in counts)))
    return sliced(whole, list(range(2, 2 + rank)), [0] * rank, sizes, 1)  # type: ignore[no-any-return]


def _of_layers(data: rx.Expr, weight: rx.Expr, depth: int, tile: int, sizes: list[int]) -> rx.Expr:
    """Return a convolution whose weight (…, depth, out, in) is transformed in two dimensions."""
    images, inner, _, *rest = known_shape(data)
    outer = known_shape(weight)[-2]
    layers = [sliced(data, [2], [k], [sizes[0]], 1) for k in range(depth)]
    stacked = R.permute_dims(R.stack(layers, 1), [0, 3, 1, 2, 4, 5])
    flat = R.reshape(stacked, (images * sizes[0], depth * inner, *rest))
    square = known_shape(weight)[:2]
    joined = R.reshape(R.permute_dims(weight, [0, 1, 3, 2, 4]), (*square, outer, depth * inner))
    result = _products(flat, joined, tile, sizes[1:])
    result = R.reshape(result, (images, sizes[0], outer, *sizes[1:]))
    return R.permute_dims(result, [0, 2, 1, 3, 4])


def _typed_winograd(args: Args, attrs: Any, rank: int) -> rx.Expr:
    result = _winograd(args, attrs, rank)
    return R.astype(result, attrs["out_dtype"]) if attrs["out_dtype"] else result


for _rank, _attributes in ((2, CONVOLUTION_2D), (3, CONVOLUTION_3D)):
    define(
        f"nn.contrib_conv{_rank}d_winograd_without_weight_transform",
        "data weight",
        lambda args, attrs, rank=_rank: _typed_winograd(args, attrs, rank),  # type: ignore[misc]
        {"tile_size": REQUIRED, **_attributes},
    )


# Weights in tiles of a matrix


def _tiles(attrs: Any) -> tuple[int, int]:
    return int(attrs["tile_N"]), int(attrs["tile_K"])


def _is_bytes(dtype: str) -> bool:
    return dtype in ("int8", "uint8")


def _gemm_transform(args: Args, attrs: Any) -> rx.Expr:
    """The weight HWIO as a matrix (K, N) in tiles: (N / n, K / k, k, n), or n, k of bytes."""
    shape, dtype = known_shape(args[0]), dtype_of(args[0])
    if len(shape) != 4:
        raise RelationError(f"the weight has the layout HWIO, found {args[0].struct_info}")
    n, k = _tiles(attrs)
    if n <= 0 or k <= 0:
        raise RelationError(f"the sizes of a tile are positive, found {n} and {k}")
    rows, columns = shape[0] * shape[1] * shape[2], shape[3]
    more = -rows % (4 * k), -columns % n
    matrix = R.nn.pad(
        R.reshape(args[0], (rows, columns)), [0, more[0], 0, more[1]], "constant", 0.0
    )
    grid = (rows + more[0]) // k, k, (columns + more[1]) // n, n
    order = [2, 0, 3, 1] if _is_bytes(dtype) else [2, 0, 1, 3]
    return R.permute_dims(R.reshape(matrix, grid), order)


define(
    "nn.contrib_conv2d_gemm_weight_transform",
    "weights",
    _gemm_transform,
    {"tile_N": REQUIRED, "tile_K": REQUIRED},
    makers={"tile_N": REQUIRED, "tile_K": REQUIRED},
)


def _gemm(args: Args, attrs: Any) -> rx.Expr:
    """The convolution with the weight that the tiles were made of."""
    data, tiles = args
    if attrs["kernel_size"] is None or attrs["channels"] is None:
        raise RelationError("kernel_size and channels are given: a transformed weight hides them")
    layout, shape = attrs["data_layout"], known_shape(tiles)
    if len(shape) != 4:
        raise RelationError(f"the weight has 4 dimensions, found {tiles.struct_info}")
    if sorted(layout) != sorted("NHWC"):
        raise RelationError(f"the layout is an order of NHWC, found {layout!r}")
    kernel = [int(size) for size in listed(attrs["kernel_size"])]
    inner = known_shape(data)[layout.index("C")] // int(attrs["groups"])
    rows, columns = kernel[0] * kernel[1] * inner, int(attrs["channels"])
    order = [1, 3, 0, 2] if _is_bytes(dtype_of(tiles)) else [1, 2, 0, 3]
    turned = [shape[axis] for axis in order]
    whole = turned[0] * turned[1], turned[2] * turned[3]
    if whole[0] < rows or whole[1] < columns:
        raise RelationError(
            f"the tiles have a matrix of {rows} by {columns}, found {tiles.struct_info}"
        )
    matrix = R.reshape(R.permute_dims(tiles, order), whole)
    weight = sliced(matrix, [0, 1], [0, 0], [rows, columns], 1)
    return R.nn.conv2d(  # type: ignore[no-any-return]
        data,
        R.reshape(weight, (*kernel, inner, columns)),
        strides=listed(attrs["strides"]),
        padding=listed(attrs["padding"]),
        dilation=listed(attrs["dilation"]),
        groups=int(attrs["groups"]),
        data_layout=layout,
        kernel_layout="HWIO",
        out_layout=attrs["out_layout"] or None,
        out_dtype=attrs["out_dtype"] or None,
    )


define("nn.contrib_conv2d_gemm_without_weight_transform", "data weight", _gemm, CONVOLUTION_2D)
