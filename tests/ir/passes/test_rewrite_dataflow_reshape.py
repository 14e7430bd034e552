"""RewriteDataflowReshape: which calls of kernels become reshapes."""

import numpy as np

import relaxpy
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.transform import LegalizeOps, RewriteDataflowReshape
from tests.ir.relax.texts import module

Mixed = module("""
def main(x: f32[n, 6]):
    with R.dataflow():
        a = R.reshape(x, R.shape([n * 2, 3]))
        b = R.permute_dims(a, (1, 0))
        c = R.expand_dims(b, 0)
        d = R.strided_slice(x, [0], [0], [1], [1])
        e = R.exp(c)
        f = R.flatten(x)
        g = R.exp(d)
    h = R.reshape(e, R.shape([n * 6]))
    return (e, f, g, h)
""")


def test_kernels_that_reshape_become_reshapes_in_dataflow_blocks_but_for_outputs() -> None:
    before = LegalizeOps()(Mixed)
    after = RewriteDataflowReshape()(before)
    values = relaxpy.relax.analysis.get_var2val(after["main"])
    reshapes = {
        var.name_hint
        for var, value in values.items()
        if isinstance(value, rx.Call) and value.op == Op.get("relax.reshape")
    }
    assert reshapes == {"a", "c"}
    x = np.arange(18, dtype="float32").reshape(3, 6)
    results = [relaxpy.compile(mod, target="reference")["main"](x) for mod in (Mixed, after)]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
    assert RewriteDataflowReshape()(after) is after
    assert RewriteDataflowReshape()(Mixed) is relaxpy.relax.transform.Normalize()(Mixed)
