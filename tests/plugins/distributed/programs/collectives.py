"""Every collective operator x datatype x shape x layout x group, compared with NumPy.

Each worker draws the tensors of all from one seed, so that it knows what has to come out. The
first argument is a step: 1 for each pair of a shape and a datatype, 16 for each sixteenth, which
are others for the next operator, in a group, and among another number of workers; as 16 is one more
than the datatypes, those of an operator differ, too. The other arguments are numbers of groups.
"""

import itertools
import sys

import ml_dtypes
import numpy as np
from mpi4py import MPI

import relaxpy
from relaxpy.distributed import current_workers, use
from relaxpy.ir.ops import ccl, dist
from relaxpy.relax import BlockBuilder, TensorStructInfo, Var

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64"),
)
SHAPES = ((), (0,), (1,), (5,), (3, 0), (2, 3, 4), (1025,))


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def drawn(rng, shape, dtype):
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        low, high = (ends.min, ends.max) if dtype.itemsize < 8 else (-(2**31), 2**31)
        return rng.integers(max(low, ends.min), high, shape, endpoint=True).astype(dtype)
    return rng.integers(-4, 5, shape).astype("float32").astype(dtype)  # sums are exact


def laid_out(x, rng):
    """The same elements, in memory of another order where the tensor has several axes."""
    return np.asfortranarray(x) if x.ndim > 1 and rng.random() < 0.5 else x


def combined(xs, how):
    dtype = xs[0].dtype
    if dtype.kind == "b":
        return {"sum": np.any, "max": np.any}.get(how, np.all)(np.stack(xs), axis=0)
    wide = np.stack(xs).astype("int64" if dtype.kind in "iu" else "float64")
    match how:
        case "sum":
            total = wide.sum(0)
        case "avg":
            total = wide.sum(0) // len(xs) if dtype.kind in "iu" else wide.sum(0) / len(xs)
        case "prod":
            total = wide.prod(0)
        case "max":
            total = wide.max(0)
        case _:
            total = wide.min(0)
    narrow_float = dtype.kind not in "iu" and dtype.itemsize < 4
    return (total.astype("float32") if narrow_float else total).astype(dtype)


def programs(make, dtypes):
    """A function for each datatype, under its name: compiling them together takes half the time."""
    builder = BlockBuilder()
    for dtype in dtypes:
        x = Var("x", TensorStructInfo(dtype=dtype, ndim=-1))
        with builder.function(dtype, [x]):
            builder.emit_func_output(builder.emit(make(x)))
    return relaxpy.compile(builder.finalize(), "numpy")


def cases(members, in_group):
    """(name, operator, what worker `me` of `members` has, axis that has to be there)."""
    n = len(members)

    def first(total):
        return lambda xs, me: total(xs) if me == 0 else np.zeros_like(total(xs))

    for how in ("sum", "prod", "min", "max", "avg"):
        yield (
            f"allreduce {how}",
            lambda x, how=how: ccl.allreduce(x, how, in_group),
            lambda xs, me, how=how: combined(xs, how),
            None,
        )
    yield "allgather", lambda x: ccl.allgather(x, n, in_group), lambda xs, me: np.concatenate(xs), 0
    yield (
        "reduce_scatter",
        lambda x: ccl.reduce_scatter(x, n, in_group=in_group),
        lambda xs, me: np.split(combined(xs, "sum"), n)[me],
        "split 0",
    )
    if not in_group:
        yield "broadcast", ccl.broadcast_from_worker0, lambda xs, me: xs[0], None
        yield "reduce", ccl.reduce_to_worker0, first(lambda xs: combined(xs, "sum")), None
        for axis in (0, -1):
            yield (
                f"scatter {axis}",
                lambda x, axis=axis: ccl.scatter_from_worker0(x, n, axis=axis),
                lambda xs, me, axis=axis: np.split(xs[0], n, axis)[me],
                f"split {axis}",
            )
            yield (
                f"gather {axis}",
                lambda x, axis=axis: ccl.gather_to_worker0(x, n, axis=axis),
                first(lambda xs, axis=axis: np.concatenate(xs, axis)),
                axis,
            )
            yield (
                f"shard {axis}",
                lambda x, axis=axis: dist.redistribute_replica_to_shard(x, n, axis),
                lambda xs, me, axis=axis: np.split(xs[me], n, axis)[me],
                f"split {axis}",
            )


def fitting(shape, need, n):
    """The shape with what the operator needs: an axis, or one whose size is a multiple."""
    if need is None:
        return shape
    shape = shape or (1,)
    if isinstance(need, str):
        axis = int(need.split()[1]) % len(shape)
        shape = (*shape[:axis], shape[axis] * n, *shape[axis + 1 :])
    return shape


def run(groups, step):
    count, rng = 0, np.random.default_rng(0)
    with use(WORLD, groups=groups, timeout=60):
        share = SIZE // groups
        own = range(RANK // share * share, (RANK // share + 1) * share)
        for in_group, members in ((True, own), (False, range(SIZE))):
            assert (current_workers().group if in_group else current_workers()).size == len(members)
            for number, (name, make, expected, need) in enumerate(cases(members, in_group)):
                first = (number + (step // 2) * in_group + SIZE) % step
                rows = [*itertools.product(SHAPES, DTYPES)][first::step]
                executable = programs(make, {dtype for _, dtype in rows})
                for shape, dtype_name in rows:
                    dtype, full = numpy_dtype(dtype_name), fitting(shape, need, len(members))
                    about = f"{name} in_group={in_group} of {dtype_name} {full} on worker {RANK}"
                    results = []
                    for _ in range(2):  # few bytes use the buffers of the first call again
                        xs = [laid_out(drawn(rng, full, dtype), rng) for _ in range(SIZE)]
                        before = xs[RANK].copy()
                        found = executable[dtype_name](xs[RANK])
                        wanted = expected([xs[k] for k in members], members.index(RANK))
                        assert (found.dtype, found.shape) == (dtype, wanted.shape), about
                        results.append((found, wanted.astype("float64")))
                        assert not np.shares_memory(found, xs[RANK]), about
                        assert xs[RANK].tobytes() == before.tobytes(), f"{about} changed x"
                        count += 1
                    for found, wanted in results:
                        np.testing.assert_array_equal(found.astype("float64"), wanted, about)
    return count


if __name__ == "__main__":
    step, *numbers = map(int, sys.argv[1:])
    total = sum(run(groups, step) for groups in numbers)
    if RANK == 0:
        print(total, "compared")
