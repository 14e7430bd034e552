"""Passes that say blocks, loops and conditions in simpler statements, on small kernels."""

import pytest

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.module import IRModule
from relaxpy.script import from_source
from relaxpy.tir import transform
from relaxpy.transform import Pass, PassContext

BLOCK = """for i, k in T.grid(8, 4):
    with T.block("sum"):
        vi, vk = T.axis.remap("SR", [i, k])
        T.reads(A[vi, vk])
        T.writes(B[vi])
"""


def changed(step: Pass, body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    buffers = 'A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32"), n: T.int32'
    mod = IRModule({"f": from_source(f"@T.prim_func\ndef f({buffers}):\n{lines}")})
    after = step(mod)
    assert step(after) is after
    _, text = after["f"].script().split("n: T.int32):\n")
    return "\n".join(line.removeprefix("    ") for line in text.strip("\n").splitlines()).replace(
        '# with T.block("root"):\n', ""
    )


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        (
            transform.LowerInitBlock(),
            f"{BLOCK}        with T.init():\n            B[vi] = T.float32(0.0)\n"
            "        B[vi] = B[vi] + A[vi, vk]",
            f"{BLOCK}        if vk == 0:\n            B[vi] = T.float32(0.0)\n"
            "        B[vi] = B[vi] + A[vi, vk]",
        ),
        (
            transform.ConvertBlocksToOpaque(),
            f"{BLOCK}        B[vi] = B[vi] + A[vi, vk]",
            'for i, k in T.grid(8, 4):\n    with T.block("sum"):\n        T.reads(A[i, k])\n'
            "        T.writes(B[i])\n        B[i] = B[i] + A[i, k]",
        ),
        (
            transform.ConvertBlocksToOpaque(),  # an init without its axes would run each time
            f"{BLOCK}        with T.init():\n            B[vi] = T.float32(0.0)\n"
            "        B[vi] = B[vi] + A[vi, vk]",
            'for i, k in T.grid(8, 4):\n    with T.block("sum"):\n        T.reads(A[i, k])\n'
            "        T.writes(B[i])\n        if k == 0:\n            B[i] = T.float32(0.0)\n"
            "        B[i] = B[i] + A[i, k]",
        ),
        (
            transform.UnrollLoop(),
            "for i in T.unroll(2, 5):\n    B[i] = B[i + 1] + A[n, i]",
            "B[2] = B[3] + A[n, 2]\nB[3] = B[4] + A[n, 3]\nB[4] = B[5] + A[n, 4]",
        ),
        (transform.UnrollLoop(), "for i in T.unroll(0):\n    B[i] = B[i + 1]", "T.evaluate(0)"),
        (
            transform.UnrollLoop(),  # which number of the datatype it becomes, a run decides
            'for i in T.unroll(2):\n    B[i] = T.Cast("float32", T.Cast("uint8", i - 1))',
            'B[0] = T.Cast("float32", T.Cast("uint8", -1))\nB[1] = T.float32(0.0)',
        ),
        (transform.UnrollLoop(), "for i in T.unroll(n):\n    B[i] = B[i + 1]", None),
        (
            transform.HoistIfThenElse(),
            "for i, j in T.grid(8, 4):\n    if T.likely(n < i):\n        B[i] = B[j]",
            "for i in range(8):\n    if T.likely(n < i):\n        for j in range(4):\n"
            "            B[i] = B[j]",
        ),
        (
            transform.HoistIfThenElse(),
            "for i, j in T.grid(8, 4):\n    if n < 2:\n        B[i] = A[i, j]\n"
            "    else:\n        B[j] = A[i, j]",
            "if n < 2:\n    for i, j in T.grid(8, 4):\n        B[i] = A[i, j]\n"
            "else:\n    for i, j in T.grid(8, 4):\n        B[j] = A[i, j]",
        ),
        (
            transform.HoistIfThenElse(),  # the condition changes
            "for i in range(8):\n    if B[0] < T.float32(1.0):\n        B[i] = A[i, 0]",
            None,
        ),
        (
            transform.HoistIfThenElse(),
            "for i in range(8):\n    if n < 2:\n        B[i] = A[i, 0]\n    B[i] = A[i, 1]",
            None,
        ),
        (
            transform.RemoveAssume(),
            "for i in range(8):\n    T.evaluate(T.assume(B[i] == T.float32(0)))\nB[0] = B[1]",
            "B[0] = B[1]",
        ),
    ],
)
def test_kernels_say_less_of_how_they_run(step: Pass, before: str, after: str | None) -> None:
    assert changed(step, before) == (before if after is None else after)


def test_blocks_that_depend_on_elements_are_refused() -> None:
    body = BLOCK.replace('T.axis.remap("SR", [i, k])', "T.axis.S(8, i), T.axis.R(4, k)")
    body = body.replace("T.axis.S(8, i)", 'T.axis.S(8, T.Cast("int32", B[i]))')
    with pytest.raises(TransformError, match="variable vi of block sum is"):
        changed(transform.ConvertBlocksToOpaque(), f"{body}        B[vi] = B[vi] + A[vi, vk]")


@pytest.mark.parametrize("loops", [(10**6,), (400, 400, 400)])
def test_loops_with_too_many_iterations_are_not_unrolled(loops: tuple[int, ...]) -> None:
    lines = [f"{'    ' * d}for i{d} in T.unroll({count}):" for d, count in enumerate(loops)]
    body = "\n".join([*lines, f"{'    ' * len(loops)}B[0] = B[1]"])
    with pytest.raises(TransformError, match="expected at most 262144 nodes in all"):
        changed(transform.UnrollLoop(), body)


def test_conditions_over_threads_stay_unless_they_may_move() -> None:
    head = 'bx = T.launch_thread("blockIdx.x", 8)\n'
    body = f"{head}for i in range(4):\n    if bx < n:\n        B[bx] = A[bx, i]"
    assert changed(transform.HoistIfThenElse(), body) == body
    moved = f"{head}if bx < n:\n    for i in range(4):\n        B[bx] = A[bx, i]"
    only = (
        "for i in range(4):\n    if n < 2:\n        B[bx] = B[i]\n    else:\n        B[i] = B[bx]"
    )
    for name in ("tir.HoistIfThenElse", "s_tir.HoistIfThenElse"):
        with PassContext(config={name: {"support_block_scope_hoisting": True}}):
            assert changed(transform.HoistIfThenElse(), body) == moved
            assert changed(transform.HoistIfThenElse(), f"{head}{only}").startswith("if n < 2:\n")
    with pytest.raises(MisuseError, match="has no option 'more'"):
        PassContext(config={"tir.HoistIfThenElse": {"more": True}})
