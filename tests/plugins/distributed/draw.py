"""Random programs whose tensors are split over a mesh in random ways.

Dimensions: meshes of 1 to 3 axes, also of size 1; tensors of rank 1 to 3 whose sizes are multiples
of the mesh; elementwise operators, products, reductions by sum, maximum, mean and variance,
transpositions, softmax, operators that need whole axes or are only kernels (cumulative sums,
reversal, sorting, concatenation, slices, reshaping), tuples of results; annotations of inputs and
intermediate values with every placement, also two axes of the mesh along one axis of a tensor, and
several annotations after each other.
"""

import random
from typing import Any

from relaxpy import IRModule, relax
from relaxpy.relax.distributed import DeviceMesh, Placement

MESHES = [(2,), (4,), (2, 2), (1, 2), (2, 1, 2), (3, 2), (2, 2, 2)]
UNARY = ["exp", "tanh", "negative", "sigmoid"]
REDUCTIONS = ["sum", "max", "mean", "variance"]
ALONG_AN_AXIS = [relax.op.cumsum, relax.op.flip, relax.op.sort]
BINARY = ["add", "multiply", "maximum", "subtract"]


def drawn_program(
    rng: random.Random, annotate: bool, steps: int = 6
) -> tuple[IRModule, tuple[int, ...], list[tuple[int, ...]]]:
    """A module, the shape of its mesh, and the shapes of what `main` takes.

    Without `annotate` it is the same program, for one worker.
    """
    mesh_shape = rng.choice(MESHES)
    count = 1
    for size in mesh_shape:
        count *= size
    mesh = DeviceMesh(mesh_shape, list(range(count)))
    sizes = [count, 2 * count]
    builder = relax.BlockBuilder()
    shapes = [
        tuple(rng.choice(sizes) for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 3))
    ]
    params = [
        relax.Var(f"x{k}", relax.TensorStructInfo(shape, "float64"))
        for k, shape in enumerate(shapes)
    ]

    def annotated(value: Any, shape: tuple[int, ...], share: float) -> Any:
        specs = [
            f"S[{rng.randrange(len(shape))}]" if shape and rng.random() < 0.6 else "R"
            for _ in mesh_shape
        ]
        if rng.random() >= share:
            return value
        placement = Placement.from_text(", ".join(specs))
        return (
            builder.emit(relax.op.dist.annotate_sharding(value, mesh, placement))
            if annotate
            else value
        )

    def shape_of(value: Any) -> tuple[int, ...]:
        return tuple(int(dim) for dim in value.struct_info.shape)

    with builder.function("main", params):
        values = [annotated(x, shape, 1.0) for x, shape in zip(params, shapes, strict=True)]
        for _ in range(rng.randint(1, steps)):
            value = rng.choice(values)
            shape = shape_of(value)
            alike = [v for v in values if shape_of(v) == shape]
            factors = (
                [v for v in values if len(shape_of(v)) == 2 and shape_of(v)[0] == shape[-1]]
                if shape
                else []
            )
            match rng.randrange(10):
                case 0:
                    call = getattr(relax.op, rng.choice(UNARY))(value)
                case 1:
                    call = getattr(relax.op, rng.choice(BINARY))(value, rng.choice(alike))
                case 2 if factors:
                    call = relax.op.matmul(value, rng.choice(factors))
                case 3 if len(shape) > 1:
                    axes = rng.sample(range(len(shape)), rng.randint(1, len(shape) - 1))
                    keepdims = rng.random() < 0.3
                    call = getattr(relax.op, rng.choice(REDUCTIONS))(value, axes, keepdims)
                case 4 if len(shape) > 1:
                    call = relax.op.permute_dims(value, rng.sample(range(len(shape)), len(shape)))
                case 5 if shape:
                    call = relax.op.nn.softmax(value, rng.randrange(len(shape)))
                case 6 if shape:
                    axis = rng.randrange(len(shape))
                    call = rng.choice(ALONG_AN_AXIS)(value, axis)
                case 7 if shape:
                    axis = rng.randrange(len(shape))
                    call = relax.op.concat([value, rng.choice(alike)], axis)
                    call = relax.op.strided_slice(
                        builder.emit(call), [axis], [shape[axis] // 2], [3 * shape[axis] // 2]
                    )
                case 8 if len(shape) > 1:
                    joined = (shape[0] * shape[1], *shape[2:])
                    call = relax.op.reshape(value, joined if rng.random() < 0.5 else shape[::-1])
                case 9 if shape:
                    parts = relax.op.split(value, 2, rng.randrange(len(shape)))
                    call = relax.op.add(
                        *(relax.TupleGetItem(builder.emit(parts), k) for k in (0, 1))
                    )
                case _:
                    call = getattr(relax.op, rng.choice(UNARY))(value)
            values.append(annotated(builder.emit(call), shape_of(call), 0.4))
        builder.emit_func_output(values[-1])
    return builder.finalize(), mesh_shape, shapes
