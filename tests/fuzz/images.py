"""Random programs over images and what is computed from them.

What is varied, each by itself:

- which operators: convolutions, pools and resizing; operators on elements, along axes, on several
  tensors; those that add, remove, permute or repeat axes; those that mix all elements;
- operands: any value of a fitting rank and shape, parameters of rank 0 to 4 among them;
- axes, from the front and from the end, several or all; fields of tuples; casts;
- how many outputs the one dataflow block has, and which.

All sizes are known: symbolic ones are varied by `sized_programs.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod

import numpy as np

Shape = tuple[int, ...]
PARAMETERS: dict[str, Shape] = {
    "image": (2, 4, 6, 6),
    "matrix": (6, 6),
    "channels": (1, 4, 1, 1),
    "column": (4, 1, 1),
    "scalar": (),
    "weight": (4, 4, 3, 3),
    "grouped": (4, 2, 3, 3),
    "vector": (4,),
}
SOURCES = ("matrix", "channels", "column", "scalar")
"""The parameters that are operands of any operator."""
MOST_ELEMENTS = 20_000


class Images:
    """A program that is being written: its lines, and the shapes of its variables."""

    def __init__(self, seed: object) -> None:
        self.rng = random.Random(str(seed))
        self.lines: list[str] = []
        self.shapes = {name: PARAMETERS[name] for name in SOURCES}
        self.tuples: dict[str, tuple[Shape, ...]] = {}
        self.bind("R.nn.conv2d(image, weight, padding=1)", (2, 4, 6, 6))
        while len(self.lines) < self.rng.randint(4, 16):
            name = self.rng.choice(sorted(self.shapes))
            if prod(self.shapes[name]) < MOST_ELEMENTS and len(self.shapes[name]) < 6:
                self.rng.choice(STEPS)(self, name, self.shapes[name])

    def bind(self, value: str, shape: Shape) -> None:
        """Bind a tensor to a new variable."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {value}")
        self.shapes[name] = shape

    def bind_tuple(self, value: str, shapes: tuple[Shape, ...]) -> None:
        """Bind a tuple of tensors to a new variable."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {value}")
        self.tuples[name] = shapes

    def axis(self, rank: int) -> tuple[int, int]:
        """An axis, and a number for it from the front or from the end."""
        axis = self.rng.randrange(rank)
        return axis, axis - rank * (self.rng.random() < 0.3)

    def like(self, shape: Shape) -> str:
        """A variable of this shape."""
        return self.rng.choice([name for name, other in self.shapes.items() if other == shape])

    def text(self) -> str:
        """The text of the module."""
        values = sorted((self.shapes.keys() | self.tuples) - set(SOURCES))
        outputs = self.rng.sample(values, self.rng.randint(1, min(3, len(values))))
        names = ", ".join(outputs)
        result = names if len(outputs) == 1 else f"({names})"
        params = ", ".join(f'{p}: R.Tensor({s}, "float32")' for p, s in PARAMETERS.items())
        body = "\n            ".join(self.lines)
        return f"""
@I.ir_module
class Module:
    @R.function
    def main({params}):
        with R.dataflow():
            {body}
            R.output({names})
        return {result}
"""

    def inputs(self) -> list[np.ndarray]:
        """Arguments of the function."""
        rng = np.random.default_rng(self.rng.randrange(2**32))
        return [rng.uniform(0.1, 0.9, shape).astype("float32") for shape in PARAMETERS.values()]


def convolution(b: Images, x: str, shape: Shape) -> None:
    if len(shape) != 4 or shape[1] != 4 or min(shape[2:]) < 3:
        return
    pad, groups = b.rng.randint(0, 1), b.rng.randint(1, 2)
    weight = "weight" if groups == 1 else "grouped"
    size = [n - 2 + 2 * pad for n in shape[2:]]
    b.bind(f"R.nn.conv2d({x}, {weight}, padding={pad}, groups={groups})", (shape[0], 4, *size))


def pool(b: Images, x: str, shape: Shape) -> None:
    layout, axes = b.rng.choice([("NCHW", (2, 3)), ("NHWC", (1, 2))])
    if len(shape) == 4 and min(shape[axis] for axis in axes) > 1:
        size = tuple(n - (axis in axes) for axis, n in enumerate(shape))
        b.bind(f'R.nn.{b.rng.choice(["max", "avg"])}_pool2d({x}, 2, layout="{layout}")', size)


def resize(b: Images, x: str, shape: Shape) -> None:
    if len(shape) == 4:
        b.bind(f"R.image.resize2d({x}, (3, 5))", (*shape[:2], 3, 5))


def normalise(b: Images, x: str, shape: Shape) -> None:
    if len(shape) == 4 and shape[1] == 4:
        vectors = ", ".join(["vector"] * 4)
        call = f"R.nn.batch_norm({x}, {vectors}, axis=1, training=False)"
        b.bind_tuple(call, (shape, (4,), (4,)))
    elif 4 in shape:
        b.bind(f"R.nn.layer_norm({x}, vector, vector, axes=[{shape.index(4)}])", shape)


def element(b: Images, x: str, shape: Shape) -> None:
    b.bind(f"R.{b.rng.choice(['tanh', 'abs', 'nn.relu', 'sigmoid'])}({x})", shape)


def elements(b: Images, x: str, shape: Shape) -> None:
    y, z = (b.rng.choice(sorted(b.shapes)) for _ in range(2))
    try:
        two = np.broadcast_shapes(shape, b.shapes[y])
        three = np.broadcast_shapes(two, b.shapes[z], PARAMETERS["channels"])
    except ValueError:
        return
    if b.rng.random() < 0.7:
        b.bind(f"R.{b.rng.choice(['add', 'maximum', 'subtract'])}({x}, {y})", two)
    else:
        # A comparison of computed values may depend on how their sums were rounded.
        b.bind(f"R.where(R.less(scalar, channels), {x}, R.add({y}, {z}))", three)


def multiply_add(b: Images, x: str, shape: Shape) -> None:
    b.bind(f"R.ewise_fma({x}, {b.like(shape)}, {b.like(shape)})", shape)


def reduction(b: Images, x: str, shape: Shape) -> None:
    if not shape:
        return
    rank = len(shape)
    axes = b.rng.sample(range(rank), b.rng.randint(1, rank))
    keep = b.rng.random() < 0.5
    left = [1 if k in axes else n for k, n in enumerate(shape) if keep or k not in axes]
    given = None if len(axes) == rank else [k - rank * (b.rng.random() < 0.3) for k in axes]
    name = b.rng.choice(["sum", "max", "mean", "min"])
    b.bind(f"R.{name}({x}, axis={given}, keepdims={keep})", tuple(left))


def along_axis(b: Images, x: str, shape: Shape) -> None:
    if not shape:
        return
    axis, given = b.axis(len(shape))
    name = b.rng.choice(["nn.softmax", "sort", "flip", "cumsum", "repeat"])
    if name == "repeat":
        size = tuple(n * (1 + (k == axis)) for k, n in enumerate(shape))
        b.bind(f"R.repeat({x}, 2, axis={given})", size)
    else:
        b.bind(f"R.{name}({x}, axis={given})", shape)


def permute(b: Images, x: str, shape: Shape) -> None:
    axes = b.rng.sample(range(len(shape)), len(shape))
    if shape:
        b.bind(f"R.permute_dims({x}, axes={axes})", tuple(shape[axis] for axis in axes))


def expand(b: Images, x: str, shape: Shape) -> None:
    rank = len(shape) + b.rng.randint(1, 2)
    axes, sizes = b.rng.sample(range(rank), rank - len(shape)), iter(shape)
    new = tuple(1 if axis in axes else next(sizes) for axis in range(rank))
    b.bind(f"R.expand_dims({x}, axis={axes})", new)


def squeeze(b: Images, x: str, shape: Shape) -> None:
    ones = [axis for axis, n in enumerate(shape) if n == 1]
    if ones:
        gone = b.rng.choice([ones, b.rng.sample(ones, b.rng.randint(1, len(ones)))])
        given = None if gone is ones else gone
        left = tuple(n for axis, n in enumerate(shape) if axis not in gone)
        b.bind(f"R.squeeze({x}, axis={given})", left)


def join(b: Images, x: str, shape: Shape) -> None:
    y = b.like(shape)
    if shape and b.rng.random() < 0.6:
        axis, given = b.axis(len(shape))
        size = tuple(n * (1 + (k == axis)) for k, n in enumerate(shape))
        b.bind(f"R.concat(({x}, {y}), axis={given})", size)
    else:
        axis = b.rng.randint(0, len(shape))
        b.bind(f"R.stack(({x}, {y}), axis={axis})", (*shape[:axis], 2, *shape[axis:]))


def split(b: Images, x: str, shape: Shape) -> None:
    even = [axis for axis, n in enumerate(shape) if n % 2 == 0]
    if even:
        axis = b.rng.choice(even)
        half = tuple(n // 2 if k == axis else n for k, n in enumerate(shape))
        b.bind_tuple(f"R.split({x}, 2, axis={axis})", (half, half))


def tuples(b: Images, x: str, shape: Shape) -> None:
    if b.tuples and b.rng.random() < 0.7:
        name = b.rng.choice(sorted(b.tuples))
        index = b.rng.randrange(len(b.tuples[name]))
        b.bind(f"{name}[{index}]", b.tuples[name][index])
    else:
        y = b.rng.choice(sorted(b.shapes))
        b.bind_tuple(f"({x}, {y})", (shape, b.shapes[y]))


def select(b: Images, x: str, shape: Shape) -> None:
    if not shape:
        return
    axis, given = b.axis(len(shape))
    if b.rng.random() < 0.5:
        end = b.rng.randint(1, shape[axis])
        size = tuple(end if k == axis else n for k, n in enumerate(shape))
        b.bind(f"R.strided_slice({x}, [{given}], [0], [{end}])", size)
    else:
        indices, new = b.rng.choice([("0", ()), ("[0]", (1,)), ("[[0, 0]]", (1, 2))])
        call = f'R.take({x}, R.const({indices}, "int64"), axis={given})'
        b.bind(call, (*shape[:axis], *new, *shape[axis + 1 :]))


def enlarge(b: Images, x: str, shape: Shape) -> None:
    rank = len(shape)
    if b.rng.random() < 0.5:
        widths = [b.rng.choice([0, 0, 1]) for _ in range(2 * rank)]
        size = tuple(n + sum(widths[2 * k : 2 * k + 2]) for k, n in enumerate(shape))
        if shape:
            b.bind(f"R.nn.pad({x}, {widths})", size)
    else:
        times = [b.rng.choice([1, 1, 2]) for _ in range(b.rng.randint(1, rank + 1))]
        b.bind(f"R.tile({x}, {times})", np.tile(np.empty(shape), times).shape)


def mix(b: Images, x: str, shape: Shape) -> None:
    if shape and shape[-1] == 6 and b.rng.random() < 0.5:
        b.bind(f"R.matmul({x}, matrix)", (*shape[:-1], 6))
    elif shape:
        b.bind(f"R.reshape({x}, (-1, {shape[-1]}))", (prod(shape[:-1]), shape[-1]))


def cast(b: Images, x: str, shape: Shape) -> None:
    b.bind(f'R.match_cast({x}, R.Tensor({shape}, "float32"))', shape)


STEPS: list[Callable[[Images, str, Shape], None]] = [
    *(convolution, convolution, convolution, pool, resize, normalise, element, elements, elements),
    *(multiply_add, reduction, reduction, along_axis, along_axis, permute, expand, squeeze, join),
    *(split, tuples, tuples, select, select, enlarge, mix, cast),
]
