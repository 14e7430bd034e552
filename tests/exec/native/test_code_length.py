"""The code of kernels has no copies that take longer to compile than they save in calls."""

import pytest

import relaxpy
from relaxpy import IRModule, te, tir
from relaxpy.exec.machine.platforms import platform_of_triple
from relaxpy.exec.native.machine_code.machine import generating_for, machine_of
from relaxpy.script import from_source

TILE = 8 * 3
"""The most sums of a tile of 512-bit vectors."""
FEW_RESULTS = "R.nn.conv2d(x, w, data_layout='NHWC', kernel_layout='HWIO')"


def code(module: IRModule) -> str:
    """The LLVM IR of a module of one kernel, for 512-bit vectors."""
    platform = platform_of_triple("x86_64-unknown-linux-gnu")
    assert platform is not None
    with generating_for(machine_of(platform, "x86-64-v4")):
        ex = relaxpy.compile(module, "native")
        [kernel] = {row.kernel for row in ex.report().rows}
        return str(ex.kernel_source(kernel, "llvm"))


@pytest.mark.parametrize(
    ("shapes", "body", "instruction", "most"),
    [
        # The costly epilogue of two vectors of columns.
        (["64, 64", "64, 96"], "R.nn.silu(R.matmul(x, w))", " = fdiv ", 1),
        # A window, for whole tiles and for the rest of rows and of columns.
        (["1, 64, 128", "96, 64, 7"], "R.nn.conv1d(x, w)", "call <16 x float> @llvm.fma", 4 * TILE),
        # A row, and 8, 4, 2 and 1 of them by two vectors, of packed weights and of others.
        (['"n", 64', "64, 256"], "R.matmul(x, w)", "call <16 x float> @llvm.fma", 9 + 2 * 15),
        # Four columns of 32 or 64 at once, and the rest of their sums: no column is left over.
        (["1, 120", "480, 120"], "R.matmul(x, R.permute_dims(w))", "@llvm.fma.v16f32(", 1 + 2 * 4),
        # Columns are pixels, which are known, and not images.
        (['"n", 16, 16, 32', "3, 3, 32, 3"], FEW_RESULTS, "call <16 x float> @llvm.fma", 4),
    ],
)
def test_instructions_are_few(shapes: list[str], body: str, instruction: str, most: int) -> None:
    params = ", ".join(
        f'{name}: R.Tensor(({shape}), "float32")' for name, shape in zip("xw", shapes, strict=True)
    )
    text = f"@R.function\ndef main({params}):\n    return {body}\n"
    assert 0 < code(from_source(text)).count(instruction) <= most


def test_packed_weights_are_decoded_in_a_loop_for_many_rows() -> None:
    rows, columns, depth = 64, 128, 256
    x = te.placeholder((rows, depth), "float32", "x")
    q = te.placeholder((columns, depth // 8), "uint32", "q")
    s = te.placeholder((columns, depth // 32), "float32", "s")
    k = te.reduce_axis((0, depth), "k")

    def weight(j: tir.PrimExpr) -> tir.PrimExpr:
        shift = (k % 8).astype("uint32") * tir.const(4, "uint32")
        number = (q[j, k // 8] >> shift) & tir.const(15, "uint32")
        return (number.astype("float32") - tir.const(7.0, "float32")) * s[j, k // 32]

    o = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * weight(j), k), "o")
    found = code(IRModule({"main": te.create_prim_func([x, q, s, o])}))
    assert 0 < found.count("permvar.sf.512(") <= 32
