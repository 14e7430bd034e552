"""Targets: the names and objects that `compile`, `build` and pipelines take."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError
from relaxpy.ir import assert_structural_equal, load_json, save_json
from relaxpy.ir.core.target import default_target
from relaxpy.script import from_source, relax as R, tir as T
from relaxpy.target import Target
from tests.ir.relax.texts import module

Module = module("""
def main(x: f32[2]) -> f32[2]:
    y = R.add(x, x)
    return y
""")

TARGETS = [
    *(None, "llvm", "llvm -mcpu=core-avx2", "cpu", {"kind": "llvm", "mcpu": "x"}),
    *(Target("llvm"), Target({"kind": "llvm"}), Target(Target("cpu")), Target("llvm", host="llvm")),
]


@pytest.mark.parametrize("target", TARGETS)
def test_processors_mean_the_default_target(target: Any) -> None:
    for ex in relaxpy.compile(Module, target), relax.build(Module, target=target):
        assert ex.target == default_target()[0]
        assert ex["main"](np.ones(2, "float32")).tolist() == [2, 2]
    relax.get_default_pipeline(target)(Module)
    relaxpy.get_pipeline("default", target=target)(Module)


def test_the_target_of_a_device() -> None:
    for device in (relaxpy.cpu(), "cpu", "cpu:0"):
        assert relaxpy.compile(Module, Target.from_device(device)).target == default_target()[0]
    gpu = Target.from_device(relaxpy.cuda(0))
    assert gpu.kind.name == "cuda"
    with pytest.raises(MisuseError, match="there is no target 'cuda'"):
        relaxpy.compile(Module, gpu)
    with pytest.raises(MisuseError):
        Target.from_device("gpuu")


def test_a_target_that_is_entered_is_that_of_compile() -> None:
    assert Target.current() is None
    with pytest.raises(MisuseError, match="no target has been entered"):
        Target.current(allow_none=False)
    with Target("reference") as outer:
        assert relaxpy.compile(Module).target == "reference"
        with Target("llvm") as inner, inner:
            assert Target.current() is inner
            assert relaxpy.compile(Module).target == inner.name == default_target()[0]
        assert Target.current(allow_none=False) is outer
        assert relaxpy.compile(Module, "numpy").target == "numpy"
    assert Target.current() is None


def test_a_target_shows_what_was_written() -> None:
    target = Target("llvm -mcpu=core-avx2")
    assert (str(target), target.kind.name) == ("llvm -mcpu=core-avx2", "llvm")
    assert target.name == default_target()[0]
    assert Target(Target("numpy")).name == "numpy"
    assert str(Target({"kind": "cpu", "keys": ["cpu"]})) == str(Target("cpu").kind) == "cpu"
    assert Target("llvm") == Target("llvm") != Target("numpy")
    assert len({Target("cpu"), Target("cpu"), Target({"kind": "cpu"})}) == 2


CUDA = ("cuda", "cuda -arch=sm_80")


@pytest.mark.parametrize("target", [*CUDA, "c", {"kind": "c"}, "", " ", 5, {"kind": 3}, {}, ["c"]])
def test_other_targets_are_errors(target: Any) -> None:
    for use in (
        lambda: relaxpy.compile(Module, target),
        lambda: relax.get_default_pipeline(target),
        *((lambda: Target(target), lambda: Target("llvm", target)) if target not in CUDA else ()),
    ):
        with pytest.raises(
            MisuseError, match=r"there is no target .*; targets are numpy, nat"
        ) as caught:
            use()
        assert caught.value.about is target


@pytest.mark.parametrize("target", [*CUDA, {"kind": "cuda"}])
def test_other_devices_are_described_and_nothing_is_compiled_for_them(target: Any) -> None:
    described = Target(target, host="llvm")
    assert described.kind.name == "cuda"
    with described, pytest.raises(MisuseError, match="there is no target 'cuda'"):
        relaxpy.compile(Module)


def test_a_misspelt_target_has_a_hint() -> None:
    with pytest.raises(MisuseError, match="did you mean 'llvm'"):
        relaxpy.compile(Module, "lvm")
    with pytest.raises(MisuseError, match="programs run on the CPU: omit the target"):
        Target("avr")
    with pytest.raises(MisuseError, match=r"""write Target\("llvm"\)"""):
        Target(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "attribute"),
    [
        (Target("llvm"), "llvm"),
        (Target(Target("numpy")), "numpy"),
        (Target({"kind": "llvm", "keys": ["cpu"]}), {"kind": "llvm", "keys": ("cpu",)}),
        (Target("llvm", host=Target("cpu")), {"kind": "llvm", "host": "cpu"}),
        (Target(Target("llvm", host="cpu")), {"kind": "llvm", "host": "cpu"}),
    ],
)
def test_a_target_is_an_attribute_that_is_printed_and_saved(target, attribute) -> None:
    captured = from_source(
        """
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    T.func_attr({"target": target, "listed": [T.target(target)]})
    for i in range(4):
        A[i] = T.float32(1)
""",
        {"T": T, "target": target},
    )
    built = from_source(captured.script()).without_attr("target").with_attr("target", target)  # type: ignore[union-attr]
    assert captured.attrs["target"] == built.attrs["target"] == attribute
    assert captured.attrs["listed"] == (attribute,)
    for func in captured, built:
        assert_structural_equal(from_source(func.script()), captured)
        assert_structural_equal(load_json(save_json(func)), captured)


def test_passes_on_kernels_run_before_compile() -> None:
    relaxpy.compile(Module, tir_pipeline=None)
    with pytest.raises(MisuseError, match=r"found 'cpu'(.|\n)*hint: omit it, and run passes"):
        relaxpy.compile(Module, tir_pipeline="cpu")


def test_kernels_may_say_that_they_are_scheduled() -> None:
    """An option of TVM after v0.22."""

    @T.prim_func(s_tir=True, private=True)
    def kernel(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]

    @T.prim_func(private=True)
    def plain(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]

    assert_structural_equal(kernel, plain)
    text = plain.script().replace("private=True", "private=True, s_tir=True")
    assert "s_tir" in text
    assert_structural_equal(from_source(text), plain)
    with pytest.raises(MisuseError, match="there is no option 's_tir'"):
        R.function(s_tir=True)


def test_options_of_a_target() -> None:
    written = Target("cuda -max_num_threads=512 -keys=gpu,cuda -libs")
    options = {"max_num_threads": 512, "keys": "gpu,cuda", "libs": True}
    assert dict(written.attrs) == {"thread_warp_size": 32, **options}
    table = Target({"kind": "llvm", "mcpu": "x"}, host="llvm")
    assert dict(table.attrs) == dict(Target(table).attrs) == {"mcpu": "x"}
    assert not Target("cpu").attrs
    assert dict(Target("metal").attrs) == {"max_num_threads": 256, "thread_warp_size": 16}
    assert Target({"kind": "cuda", "thread_warp_size": 64}).attrs["thread_warp_size"] == 64
    assert Target(Target("rocm")).attrs["max_num_threads"] == 256
    kinds = (written, "cuda", "metal", "llvm")
    assert [Target(t).max_num_threads for t in kinds] == [512, 1024, 256, 1]
    assert [Target(t).thread_warp_size for t in kinds] == [32, 32, 16, 1]
    assert [Target(t).keys for t in ("cuda", "hexagon", "native")] == [
        ("cuda", "gpu"),
        ("hexagon",),
        ("cpu",),
    ]
    assert written.keys == ("gpu", "cuda")
    assert (table.mcpu, table.arch, table.model, table.device_name) == ("x", "", "unknown", "")
    assert Target("cuda -arch=sm_90a -libs=cublas,cudnn").libs == ("cublas", "cudnn")
    assert Target({"kind": "llvm", "mattr": ["+avx2"]}).mattr == ("+avx2",)


def test_the_host_of_a_target() -> None:
    both = Target("cuda -arch=sm_90a").with_host("llvm -mcpu=x")
    table = {"kind": "cuda", "arch": "sm_90a", "host": {"kind": "llvm", "mcpu": "x"}}
    assert both.export() == table
    assert Target(table).export() == Target(both).export() == table
    assert Target(table).host == Target({"kind": "llvm", "mcpu": "x"})
    assert Target("llvm").host is None
    with pytest.raises(MisuseError, match="there is no target 'lvm'"):
        Target({"kind": "cuda", "host": "lvm"})
