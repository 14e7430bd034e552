"""RewriteCUDAGraph: which storages and calls it moves, and that values stay the same."""

from collections.abc import Iterator

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax import transform
from relaxpy.relax.transform import Normalize, RewriteCUDAGraph
from relaxpy.script import ir as I, relax as R
from relaxpy.transform import PassContext, Sequential
from tests.ir.relax.texts import module

pytestmark = pytest.mark.rule("OPT-10")
OPTION = "relax.backend.use_cuda_graph"


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    with PassContext(config={OPTION: True}):
        yield


DOUBLE = """
@kernel
def double(px: T.handle, py: T.handle):
    n = T.int64()
    x = T.match_buffer(px, (n,), "float32")
    y = T.match_buffer(py, (n,), "float32")
    for i in range(n):
        with T.block("double"):
            a = T.axis.spatial(n, i)
            y[a] = x[a] * T.float32(2)
"""

Chain = module(f"""
{DOUBLE}
def main(x: f32[4]) -> f32[4]:
    R.func_attr({{"relax.force_pure": True}})
    s = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
    a = R.memory.alloc_tensor(s, 0, R.shape([4]), "float32")
    cls.double(x, a)
    t = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
    b = R.memory.alloc_tensor(t, 0, R.shape([4]), "float32")
    cls.double(a, b)
    R.memory.kill_tensor(a)
    u = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
    c = R.memory.alloc_tensor(u, 0, R.shape([4]), "float32")
    pair = (b, c)
    cls.double(pair[0], c)
    d = R.builtin.alloc_tensor(R.shape([4]), "float32", 0)
    cls.double(c, d)
    R.memory.kill_storage(s)
    return d
""")

TwoSizes = module(f"""
{DOUBLE}
def main(x: f32[n], w: f32[m]):
    R.func_attr({{"relax.force_pure": True, "num_input": 1}})
    s = R.memory.alloc_storage(R.shape([64]), 0, "global", "float32")
    a = R.memory.alloc_tensor(s, 0, R.shape([m]), "float32")
    cls.double(w, a)
    t = R.memory.alloc_storage(R.shape([64]), 0, "global", "float32")
    b = R.memory.alloc_tensor(t, 0, R.shape([n]), "float32")
    cls.double(x, b)
    c = R.builtin.alloc_tensor(R.shape([m]), "float32", 0)
    cls.double(a, c)
    d = R.builtin.alloc_tensor(R.shape([n]), "float32", 0)
    cls.double(b, d)
    return (c, d)
""")


def names(mod: IRModule) -> set[str]:
    return {var.name_hint for var in mod.get_global_vars()}


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_values_are_those_before(target: str) -> None:
    after = RewriteCUDAGraph()(Chain)
    assert names(after) == names(Chain) | {"cuda_graph_alloc", "main_cuda_graph_capture"}
    assert check_well_formed(after, normal_form=True) == []
    main = relaxpy.compile(after, target=target)["main"]
    first, second = np.arange(4, dtype="float32"), np.ones(4, "float32")
    one, other = main(first), main(second)
    np.testing.assert_array_equal(one, first * 16)
    np.testing.assert_array_equal(other, second * 16)


def test_regions_depend_on_static_parameters_and_their_dimensions() -> None:
    after = RewriteCUDAGraph()(TwoSizes)
    capture = after["main_cuda_graph_capture"]
    assert [p.name_hint for p in capture.params] == ["w", "a", "shape_expr"]
    x, w = np.arange(3, dtype="float32"), np.arange(5, dtype="float32")
    c, d = relaxpy.compile(after)["main"](x, w)
    np.testing.assert_array_equal(c, w * 4)
    np.testing.assert_array_equal(d, x * 4)


def test_dimensions_may_be_named() -> None:
    mod = Chain.clone()
    attrs = {"relax.rewrite_cuda_graph.capture_symbolic_vars": ["n"]}
    mod["main"] = TwoSizes["main"].with_attr(attrs)
    after = RewriteCUDAGraph()(mod)
    capture = after["main_cuda_graph_capture"]
    assert [p.name_hint for p in capture.params] == ["w", "a", "t", "shape_expr"]
    x, w = np.arange(3, dtype="float32"), np.arange(5, dtype="float32")
    for one, other in zip(relaxpy.compile(after)["main"](x, w), (w * 4, x * 4), strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_the_option_nothing_changes() -> None:
    mod = Normalize()(Chain)
    with PassContext(config={OPTION: False}):
        assert RewriteCUDAGraph()(mod) is mod


def test_storages_that_results_may_share_stay() -> None:
    Returned = module("""
    @impure
    def main():
        s = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
        a = R.memory.alloc_tensor(s, 0, R.shape([4]), "float32")
        R.call_packed("fill", a, sinfo_args=R.Tuple())
        b = R.call_packed("vm.builtin.reshape", a, R.shape([2, 2]), sinfo_args=R.Tensor)
        return (b,)
    """)
    mod = Normalize()(Returned)
    assert RewriteCUDAGraph()(mod) is mod


def test_storages_of_functions_are_shared_by_size() -> None:
    Before = module("""
    @impure
    def first():
        s = R.memory.alloc_storage(R.shape([64]), 0, "global", "uint8")
        t = R.memory.alloc_storage(R.shape([128]), 0, "global", "uint8")
        return R.tuple()

    @impure
    def second():
        s = R.memory.alloc_storage(R.shape([96]), 0, "global", "uint8")
        t = R.memory.alloc_storage(R.shape([32]), 0, "shared", "uint8")
        return R.tuple()
    """)
    After = module("""
    @private
    def cuda_graph_alloc():
        R.func_attr({"relax.force_pure": True})
        a = R.memory.alloc_storage(R.shape([128]), 0, "global", "uint8")
        b = R.memory.alloc_storage(R.shape([64]), 0, "global", "uint8")
        c = R.memory.alloc_storage(R.shape([32]), 0, "shared", "uint8")
        gv = (a, b, c)
        return gv

    @impure
    def first():
        gv = R.call_builtin_with_ctx(
            "vm.builtin.cuda_graph.get_cached_alloc",
            (cls.cuda_graph_alloc, R.prim_value(0)),
            sinfo_args=R.Tuple(R.Object, R.Object, R.Object),
        )
        s = gv[1]
        t = gv[0]
        return R.tuple()

    @impure
    def second():
        gv = R.call_builtin_with_ctx(
            "vm.builtin.cuda_graph.get_cached_alloc",
            (cls.cuda_graph_alloc, R.prim_value(0)),
            sinfo_args=R.Tuple(R.Object, R.Object, R.Object),
        )
        s = gv[0]
        t = gv[2]
        return R.tuple()
    """)
    assert_structural_equal(RewriteCUDAGraph()(Before), After)


@pytest.mark.parametrize("of_function", [True, False])
def test_calls_that_cannot_be_captured_end_a_region(of_function: bool) -> None:
    @I.ir_module
    class Before:
        @R.function(private=True, pure=False)
        def other(x: R.Tensor((4,), "uint8")):
            return R.tuple()

        @R.function(pure=False)
        def main():
            cls = Before
            s = R.memory.alloc_storage(R.shape([4]), 0, "global", "uint8")
            a = R.memory.alloc_tensor(s, 0, R.shape([4]), "uint8")
            R.call_packed("one", a, sinfo_args=R.Tuple())
            R.call_packed("two", a, sinfo_args=R.Tuple())
            if of_function:
                cls.other(a)
            else:
                R.print(a, format="{}")
            R.call_packed("three", a, sinfo_args=R.Tuple())
            return R.tuple()

    after = RewriteCUDAGraph()(Before)
    captures = [after[f"main_cuda_graph_capture{k}"].script() for k in ("", "1")]
    assert [[word in text for word in ("one", "two", "three")] for text in captures] == [
        [True, True, False],
        [False, False, True],
    ]
    assert check_well_formed(after, normal_form=True) == []


Network = module("""
def main(x: f32[n, 8], w: f32[8, 8], b: f32[8], flag: bool):
    R.func_attr({"num_input": 1})
    s = R.nn.relu(R.matmul(w, w))
    u = R.add(R.matmul(s, w), b)
    if flag:
        h = R.matmul(x, u)
    else:
        e = R.exp(x)
        h = R.matmul(e, s)
    return R.add(h, R.sum(u, axis=0))
""")

PLANNED = Sequential(
    [
        transform.LegalizeOps(),
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory(),
        RewriteCUDAGraph(),
    ]
)
LOWERED = Sequential(
    [
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.VMShapeLower(),
    ]
)


@pytest.mark.parametrize("flag", [True, False])
def test_planned_networks_have_the_same_values(flag: bool) -> None:
    random = np.random.default_rng(0)
    shapes = (3, 8), (8, 8), (8,)
    args = [random.random(shape, dtype="float32") for shape in shapes] + [np.array(flag)]
    expected = relaxpy.compile(Network)["main"](*args)
    planned = PLANNED(Network)
    assert "main_cuda_graph_capture" in names(planned)
    for mod in (planned, LOWERED(planned)):
        main = relaxpy.compile(mod)["main"]
        for _ in range(2):
            np.testing.assert_allclose(main(*args), expected, rtol=1e-5)
