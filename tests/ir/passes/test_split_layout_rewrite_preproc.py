"""SplitLayoutRewritePreproc: kernels that are divided, and those that stay."""

import numpy as np
import pytest

from relaxpy import IRModule, relax
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import SplitLayoutRewritePreproc
from tests.ir.passes.before_after import agree
from tests.ir.relax.texts import module

REWRITE = """
        for i, j in SS(4, 6, "{rows}"):
            T.block_attr({{"meta_schedule.layout_rewrite_preproc": True}})
            {rows}[vi // 2, vj, vi % 2] = {w}[vi, vj]"""
SUM = """
        for i, j in SS(4, 6):
            y[vi, vj] = {value}"""
ALLOC = """
        p = T.alloc_buffer((2, 6, 2), "float32")
        s = T.alloc_buffer((4,), "float32")
        q = T.alloc_buffer((2, 6, 2), "float32")"""
READ = "{}[vi // 2, vj, vi % 2]"
STEPS = """
        for i, k in T.grid(4, 6):
            with T.block("p"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                with T.init():
                    s[vi] = 0.0
                s[vi] = s[vi] + w[vi, vk]
        for i, j in SS(4, 6, "q"):
            T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
            q[vi // 2, vj, vi % 2] = w[vi, vj] * s[vi]"""


def program(body: str, *, call: str = "y = R.call_tir(cls.kernel, (x, w, v), out)") -> IRModule:
    buffers = ", ".join(f'{name}: T.Buffer((4, 6), "float32")' for name in "xwvy")
    tensors = ", ".join(f'{name}: R.Tensor((4, 6), "float32")' for name in "xwv")
    return module(f"""
    @kernel
    def kernel({buffers}):
        T.func_attr({{"layout_free_buffers": [1, 2]}})
{ALLOC}{body}

    def main({tensors}):
        out = R.Tensor((4, 6), "float32")
        with R.dataflow():
            {call}
        return y
    """)


def check_values(mod: IRModule, after: IRModule) -> None:
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((4, 6)).astype("float32") for _ in range(3)]
    agree(mod, after, *data)


BOTH = REWRITE.format(rows="p", w="w") + REWRITE.format(rows="q", w="v")
VALUE = f"x[vi, vj] + {READ.format('p')} * {READ.format('q')}"


@pytest.mark.parametrize(
    "body",
    [
        REWRITE.format(rows="p", w="w") + SUM.format(value=f"x[vi, vj] + {READ.format('p')}"),
        BOTH + SUM.format(value=VALUE),
        REWRITE.format(rows="p", w="v")
        + REWRITE.format(rows="q", w="w")
        + SUM.format(value=f"x[vi, vj] - {READ.format('p')} * {READ.format('q')}"),
        REWRITE.format(rows="p", w="v") + STEPS + SUM.format(value=VALUE),
    ],
    ids=["one", "two", "in another order", "in two steps"],
)
def test_weights_are_rewritten_by_a_kernel_of_their_own(body: str) -> None:
    mod = program(body)
    after = SplitLayoutRewritePreproc()(mod)
    assert sorted(after.functions_by_name) == ["kernel_prepacked", "kernel_weight_prepack", "main"]
    assert all("layout_free" not in name for f in after.functions.values() for name in f.attrs)
    assert "layout_rewrite_preproc" not in after.script()
    assert check_well_formed(after, normal_form=True) == []
    assert SplitLayoutRewritePreproc()(after) is after
    check_values(mod, after)
    check_values(mod, relax.transform.ToNonDataflow()(after))


def test_calls_share_the_kernels() -> None:
    calls = [
        "z = R.call_tir(cls.kernel, (x, w, v), out)",
        "y = R.call_tir(cls.kernel, (z, w, v), out)",
    ]
    mod = program(BOTH + SUM.format(value=VALUE), call="\n            ".join(calls))
    after = SplitLayoutRewritePreproc()(mod)
    assert len(after.functions) == 3
    assert after["main"].script().count("call_tir") == 4
    check_values(mod, after)


@pytest.mark.parametrize(
    "body",
    [
        SUM.format(value="x[vi, vj] + w[vi, vj]"),
        REWRITE.format(rows="p", w="w").replace("True", "False")
        + SUM.format(value=f"x[vi, vj] + {READ.format('p')}"),
        REWRITE.format(rows="p", w="w") + SUM.format(value=f"w[vi, vj] + {READ.format('p')}"),
        REWRITE.format(rows="p", w="w") + REWRITE.format(rows="q", w="w") + SUM.format(value=VALUE),
        REWRITE.format(rows="p", w="w")
        + REWRITE.format(rows="p", w="v").replace("preproc", "other")
        + SUM.format(value=f"x[vi, vj] + {READ.format('p')}"),
        STEPS + SUM.format(value=f"{READ.format('q')} + s[vi]"),
        STEPS.replace("w[vi, vj] * s", "v[vi, vj] * s") + SUM.format(value=READ.format("q")),
        STEPS + SUM.format(value=f"x[vi, vj] + w[vi, vj] * {READ.format('q')}"),
        REWRITE.format(rows="p", w="v") + STEPS + SUM.format(value=READ.format("q")),
    ],
    ids=[
        *("nothing", "not annotated", "also read", "twice", "also written", "a step also read"),
        *("of two operands", "read in steps and by others", "not read"),
    ],
)
def test_other_kernels_stay(body: str) -> None:
    mod = program(body)
    assert SplitLayoutRewritePreproc()(mod) is mod
