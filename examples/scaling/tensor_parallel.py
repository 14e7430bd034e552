"""A block of a Llama, its heads and hidden units split among workers, and a batch split as well.

mpiexec -n 2 python examples/scaling/tensor_parallel.py        heads and hidden units
mpiexec -n 4 python examples/scaling/tensor_parallel.py 2 2    a mesh that splits the batch, too
"""

import sys

import numpy as np

import relaxpy
from relaxpy import IRModule
from relaxpy.distributed import current_workers
from relaxpy.script import from_source

HEADS, WIDTH, HIDDEN, LENGTH, BATCH = 4, 32, 48, 6, 4

TEXT = """
@I.ir_module
class Block:
    I.module_global_infos({{"mesh": [R.device_mesh({shape}, I.Range(0, {count}))]}})

    @R.function
    def main(
        x: R.Tensor((4, 6, 32), "float32"),
        wq: R.Tensor((32, 32), "float32"), wk: R.Tensor((32, 32), "float32"),
        wv: R.Tensor((32, 32), "float32"), wo: R.Tensor((32, 32), "float32"),
        gate: R.Tensor((32, 48), "float32"), up: R.Tensor((32, 48), "float32"),
        down: R.Tensor((48, 32), "float32"), norm: R.Tensor((32,), "float32"),
    ):
        with R.dataflow():
            x0 = R.dist.annotate_sharding(x, "mesh[0]", "{batch}")
            q0 = R.dist.annotate_sharding(wq, "mesh[0]", "{columns}")
            k0 = R.dist.annotate_sharding(wk, "mesh[0]", "{columns}")
            v0 = R.dist.annotate_sharding(wv, "mesh[0]", "{columns}")
            n0 = R.nn.rms_norm(x0, norm, axes=[-1])
            q = R.permute_dims(R.reshape(R.matmul(n0, q0), (4, 6, 4, 8)), [0, 2, 1, 3])
            k = R.permute_dims(R.reshape(R.matmul(n0, k0), (4, 6, 4, 8)), [0, 2, 3, 1])
            v = R.permute_dims(R.reshape(R.matmul(n0, v0), (4, 6, 4, 8)), [0, 2, 1, 3])
            scores = R.nn.softmax(R.matmul(q, k) * R.const(8**-0.5, "float32"), axis=-1)
            mixed = R.reshape(R.permute_dims(R.matmul(scores, v), [0, 2, 1, 3]), (4, 6, 32))
            y = x0 + R.matmul(mixed, wo)
            g0 = R.dist.annotate_sharding(gate, "mesh[0]", "{columns}")
            n1 = R.nn.rms_norm(y, norm, axes=[-1])
            hidden = R.nn.silu(R.matmul(n1, g0)) * R.matmul(n1, up)
            z = y + R.matmul(hidden, down)
            R.output(z)
        return z
"""


def block(shape: tuple[int, ...]) -> IRModule:
    """The block on a mesh whose last axis splits heads and hidden units."""
    batch = ", ".join(["S[0]"] * (len(shape) - 1) + ["R"])
    columns = ", ".join(["R"] * (len(shape) - 1) + ["S[1]"])
    count = int(np.prod(shape))
    return from_source(TEXT.format(shape=shape, count=count, batch=batch, columns=columns))


def operands() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(BATCH, LENGTH, WIDTH), *[(WIDTH, WIDTH)] * 4]
    shapes += [(WIDTH, HIDDEN), (WIDTH, HIDDEN), (HIDDEN, WIDTH), (WIDTH,)]
    return [rng.standard_normal(shape).astype("float32") / 4 for shape in shapes]


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def expected() -> np.ndarray:
    x, wq, wk, wv, wo, gate, up, down, norm = (a.astype("float64") for a in operands())

    def normed(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * norm

    def heads(w: np.ndarray) -> np.ndarray:
        return (normed(x) @ w).reshape(BATCH, LENGTH, HEADS, -1).transpose(0, 2, 1, 3)

    scores = heads(wq) @ heads(wk).swapaxes(2, 3) * 8**-0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = (weights @ heads(wv)).transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH)
    y = x + mixed @ wo
    return y + (silu(normed(y) @ gate) * (normed(y) @ up)) @ down


if __name__ == "__main__":
    workers = current_workers()
    mesh = tuple(map(int, sys.argv[1:])) or (workers.size,)
    program = relaxpy.compile(block(mesh), relax_pipeline=relaxpy.get_pipeline("distributed"))
    args = operands() if workers.rank == 0 else [np.zeros_like(a) for a in operands()]
    with relaxpy.distributed.use(timeout=60):
        found = program["main"](*args)
    whole = expected()
    split = int(np.prod(mesh[:-1]))
    own = np.split(whole, split)[workers.rank // mesh[-1]]
    np.testing.assert_allclose(found, own, rtol=1e-4, atol=1e-5)
    print(f"{workers.rank}: equal")
