"""Random sequences of primitives.

`python -m tests.fuzz.primitives COUNT [SEED]` applies COUNT of them to kernels that leave elements
as they were, and compares all targets with the kernel without a schedule.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import relaxpy
from relaxpy import tir
from relaxpy.errors import ScheduleError
from tests.fuzz.partial_kernels import partial_kernel
from tests.fuzz.progress import command_line, report

Step = Callable[[tir.Schedule, random.Random], object]


def a_block(sch: tir.Schedule, rng: random.Random) -> Any:
    blocks = sch.get_child_blocks(sch.get_block("root"))
    inner = [b for block in blocks for b in sch.get_child_blocks(block)]
    return rng.choice(blocks + inner)


def some_loops(sch: tir.Schedule, rng: random.Random) -> list[Any]:
    loops = sch.get_loops(a_block(sch, rng))
    if not loops:
        raise ScheduleError("no loop")
    return loops


def a_loop(sch: tir.Schedule, rng: random.Random) -> Any:
    return rng.choice(some_loops(sch, rng))


def split(sch: tir.Schedule, rng: random.Random) -> None:
    factors = rng.choice([[None, 2], [3, None], [None, 5], [2, None, 2], [1, None], [None, 1]])
    sch.split(a_loop(sch, rng), factors, preserve_unit_iters=rng.random() < 0.5)


def fuse(sch: tir.Schedule, rng: random.Random) -> None:
    loops = some_loops(sch, rng)
    start = rng.randrange(len(loops))
    chosen = loops[start : start + rng.randint(1, 3)]
    sch.fuse(*chosen, preserve_unit_iters=rng.random() < 0.5)


def reorder(sch: tir.Schedule, rng: random.Random) -> None:
    loops = some_loops(sch, rng)
    sch.reorder(*rng.sample(loops, rng.randint(min(2, len(loops)), len(loops))))


def merge(sch: tir.Schedule, rng: random.Random) -> None:
    first, second = some_loops(sch, rng), some_loops(sch, rng)
    depth = rng.randrange(min(len(first), len(second)))
    sch.merge(first[depth], second[depth])


def a_buffer(sch: tir.Schedule, rng: random.Random) -> tuple[Any, int]:
    return a_block(sch, rng), rng.randrange(2)


def cache(sch: tir.Schedule, rng: random.Random, way: str) -> None:
    scope = rng.choice(["global", "shared", "local"])
    getattr(sch, way)(*a_buffer(sch, rng), scope)


def reindexed_cache(sch: tir.Schedule, rng: random.Random, way: str) -> None:
    block, number = a_buffer(sch, rng)
    accessed = sch.get(block).reads if way.endswith("read") else sch.get(block).writes
    text = str(accessed[number : number + 1])
    used = [k for k, it in enumerate(sch.get(block).iter_vars) if it.var.name in text]
    if not used:
        raise ScheduleError("no variable")
    made = rng.choice(MAPS)
    getattr(sch, way)(
        block, number, rng.choice(["global", "local"]), lambda *own: made(*(own[k] for k in used))
    )


def roll(sch: tir.Schedule, rng: random.Random) -> None:
    """Roll a buffer, mostly one whose block goes into a loop of tiles of its reader first."""
    block = a_block(sch, rng)
    readers = sch.get_consumers(block)
    if readers and rng.random() < 0.9:
        loop = rng.choice(sch.get_loops(rng.choice(readers)) or [a_loop(sch, rng)])
        outer, _ = sch.split(loop, [None, rng.randint(2, 4)])
        sch.compute_at(block, outer)
    sch.rolling_buffer(block, 0)


def decompose(sch: tir.Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    sch.decompose_reduction(block, rng.choice(sch.get_loops(block) or [a_loop(sch, rng)]))


def move(sch: tir.Schedule, rng: random.Random, way: str) -> None:
    index = rng.choice([-1, -1, -2, 0, 1])
    keep = rng.random() < 0.5
    getattr(sch, way)(a_block(sch, rng), a_loop(sch, rng), preserve_unit_loops=keep, index=index)


def fuse_epilogue(sch: tir.Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    sch.fuse_reduction_epilogue(block, rng.choice(sch.get_consumers(block) or [block]))


MAPS: list[Callable[..., Any]] = [
    lambda i, *rest: (*rest, i),
    lambda i, *rest: (i // 2, *rest, i % 2),
    lambda i, *rest: (i // 4, *rest, i % 4),
    lambda *all_of: (*all_of[:-1], all_of[-1] // 3, all_of[-1] % 3),
]


def relayout(sch: tir.Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    inner = [b for b in sch.get(sch.get_block("root")).alloc_buffers if b.ndim]
    if not any(region.buffer in inner for region in sch.get(block).writes[:1]):
        raise ScheduleError("the layout of a parameter stays")
    pad = rng.choice([None, 7])
    sch.transform_layout(block, ("write", 0), rng.choice(MAPS), pad_value=pad)


def pad_einsum(sch: tir.Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    sch.pad_einsum(block, [rng.choice([1, 4, 5]) for _ in sch.get(block).iter_vars])


def a_side(rng: random.Random) -> tuple[str, int]:
    return rng.choice(["read", "write"]), rng.randrange(2)


def reorder_variables(sch: tir.Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    count = len(sch.get(block).iter_vars)
    sch.reorder_block_iter_var(block, rng.sample(range(count), count))


STEPS: dict[str, Step] = {
    "split": split,
    "fuse": fuse,
    "loop_partition": lambda sch, rng: sch.loop_partition(
        a_loop(sch, rng), rng.choice([[1, None], [2], [None, 1]])
    ),
    "merge": merge,
    "reorder": reorder,
    "add_unit_loop": lambda sch, rng: sch.add_unit_loop(a_loop(sch, rng)),
    "parallel": lambda sch, rng: sch.parallel(a_loop(sch, rng)),
    "vectorize": lambda sch, rng: sch.vectorize(a_loop(sch, rng)),
    "unroll": lambda sch, rng: sch.unroll(a_loop(sch, rng)),
    "bind": lambda sch, rng: sch.bind(a_loop(sch, rng), rng.choice(["blockIdx.x", "threadIdx.x"])),
    "annotate": lambda sch, rng: sch.annotate(a_loop(sch, rng), "key", 1),
    "cache_read": lambda sch, rng: cache(sch, rng, "cache_read"),
    "cache_write": lambda sch, rng: cache(sch, rng, "cache_write"),
    "set_scope": lambda sch, rng: cache(sch, rng, "set_scope"),
    "decompose_reduction": decompose,
    "rfactor": lambda sch, rng: sch.rfactor(a_loop(sch, rng), rng.randint(-1, 1)),
    "compute_at": lambda sch, rng: move(sch, rng, "compute_at"),
    "reverse_compute_at": lambda sch, rng: move(sch, rng, "reverse_compute_at"),
    "blockize": lambda sch, rng: sch.blockize(a_loop(sch, rng), rng.random() < 0.5),
    "transform_layout": relayout,
    "transform_block_layout": lambda sch, rng: sch.transform_block_layout(
        a_block(sch, rng), rng.choice(MAPS)
    ),
    "reorder_block_iter_var": reorder_variables,
    "set_axis_separator": lambda sch, rng: sch.set_axis_separator(
        a_block(sch, rng), a_side(rng), rng.choice([[1], []])
    ),
    "reindex": lambda sch, rng: sch.reindex(a_block(sch, rng), a_side(rng)),
    "reindex_cache_read": lambda sch, rng: reindexed_cache(sch, rng, "reindex_cache_read"),
    "reindex_cache_write": lambda sch, rng: reindexed_cache(sch, rng, "reindex_cache_write"),
    "rolling_buffer": roll,
    "pad_einsum": pad_einsum,
    "decompose_padding": lambda sch, rng: sch.decompose_padding(
        a_block(sch, rng), a_loop(sch, rng)
    ),
    "compute_inline": lambda sch, rng: sch.compute_inline(a_block(sch, rng)),
    "reverse_compute_inline": lambda sch, rng: sch.reverse_compute_inline(a_block(sch, rng)),
    "fuse_reduction_epilogue": fuse_epilogue,
}
#: How often a step is drawn, if more than once.
WEIGHTS = {
    "split": 4,
    "fuse": 3,
    "reorder": 4,
    "compute_at": 4,
    "reverse_compute_at": 4,
    "blockize": 2,
}


#: How often a step is drawn for kernels that leave elements as they were: copies and moves most.
OF_PARTIAL_KERNELS = dict.fromkeys(STEPS, 4) | {
    "split": 12,
    "fuse": 8,
    "reorder": 12,
    "blockize": 8,
    "rfactor": 12,
    "cache_write": 16,
    "reindex": 16,
    "reindex_cache_write": 12,
    "decompose_reduction": 16,
    "compute_at": 16,
    "reverse_compute_at": 16,
    "compute_inline": 8,
    "reverse_compute_inline": 8,
    "annotate": 1,
    "set_axis_separator": 1,
}
TARGETS = ("reference", "numpy", "native")
SCHEDULES_OF_A_KERNEL = 8


def schedule_at_random(
    func: tir.PrimFunc, rng: random.Random, length: int, weights: Mapping[str, int] = WEIGHTS
) -> tuple[tir.Schedule, list[str]]:
    """A schedule after a sequence, and the names of the steps that were applied."""
    sch = tir.Schedule(func)
    names = list(STEPS)
    applied = []
    for name in rng.choices(names, [weights.get(name, 1) for name in names], k=length):
        try:
            STEPS[name](sch, rng)
        except ScheduleError:
            continue
        applied.append(name)
    return sch, applied


def check_partial_kernel(seed: str, number: int) -> list[str]:
    """Schedule a random kernel, and return the names of the steps that were applied.

    Errors:
        AssertionError: the values on one of the targets are not those of the kernel.
    """
    func, arguments, expected = partial_kernel(f"{seed} {number // SCHEDULES_OF_A_KERNEL}")
    rng = random.Random(f"{seed} {number}")
    sch, applied = schedule_at_random(func, rng, rng.choice([5, 8, 14]), OF_PARTIAL_KERNELS)
    for target in TARGETS[: 3 if number % 4 == 0 else 1]:
        results = arguments()
        relaxpy.compile(sch.mod, target=target)["main"](*results)
        for result, wanted in zip(results, expected, strict=True):
            note = f"{seed} {number} {target}: {applied}\n{func.script()}\n{sch.trace}"
            np.testing.assert_array_equal(result, wanted, note)
    return applied


def main(count: int, seed: str) -> int:
    """Report the failures of `count` schedules; 1 if there are any."""
    check = lambda _, number: check_partial_kernel(seed, number)  # noqa: E731
    return report("random schedules", count, seed, check)


if __name__ == "__main__":
    command_line(main)
