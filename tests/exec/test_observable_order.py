"""What a program can observe of its evaluation: order, identity, errors, threads."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MatchCastError, PackedFuncError, ParseError, RuntimeCheckError
from relaxpy.script import from_source
from relaxpy.transform import PassContext, module_pass
from tests.ir.relax import texts

TARGETS = pytest.mark.parametrize("target", ["native", "numpy", "reference"])


@pytest.fixture
def log() -> Iterator[list[object]]:
    """What the packed functions `test.note_*` were called with, in order."""
    seen: list[object] = []

    def note(value: object) -> object:
        seen.append(value)
        return value

    for name in ("test.note_a", "test.note_b"):
        relaxpy.register_func(name, lambda value, name=name: note((name, value))[1])
    yield seen
    for name in ("test.note_a", "test.note_b"):
        relaxpy.runtime.remove_global_func(name)


Both = texts.module("""
@impure
def main(x: bool, y: bool) -> bool:
    a = R.call_packed("test.note_a", x, sinfo_args=bool)
    b = R.call_packed("test.note_b", y, sinfo_args=bool)
    return R.logical_and(a, b)
""")


@TARGETS
@pytest.mark.rule("EV-15", "EV-26")
def test_logical_operators_evaluate_both_arguments(log: list[object], target: str) -> None:
    executable = relaxpy.compile(Both, target)
    assert not executable["main"](np.array(False), np.array(True))
    assert [name for name, _ in log] == ["test.note_a", "test.note_b"]


@TARGETS
@pytest.mark.rule("VAL-18", "EV-19")
def test_packed_functions_see_the_very_values(log: list[object], target: str) -> None:
    x, y = np.array(True), np.array(False)
    relaxpy.compile(Both, target)["main"](x, y)
    assert log[0][1] is x
    assert log[1][1] is y


@TARGETS
@pytest.mark.rule("EV-25")
def test_packed_functions_run_one_after_the_other_on_the_calling_thread(target: str) -> None:
    threads: list[int] = []

    def note(value: np.ndarray) -> np.ndarray:
        threads.append(threading.get_ident())
        return value

    relaxpy.register_func("test.note_a", note)
    relaxpy.register_func("test.note_b", note)
    try:
        relaxpy.compile(Both, target)["main"](np.array(True), np.array(True))
    finally:
        relaxpy.runtime.remove_global_func("test.note_a")
        relaxpy.runtime.remove_global_func("test.note_b")
    assert threads == [threading.get_ident()] * 2


Unknown = texts.module("""
@impure
def main(s: R.Shape(["p", "q"])) -> R.Object:
    y = R.call_packed("test.nobody", R.prim_value(p // q), sinfo_args=R.Object)
    return y
""")


@TARGETS
@pytest.mark.rule("EV-17", "LEG-32")
def test_the_callee_comes_before_its_arguments(target: str) -> None:
    executable = relaxpy.compile(Unknown, target)
    nothing = relaxpy.runtime.ShapeTuple((3, 0))
    with pytest.raises(PackedFuncError, match=r"test\.nobody"):
        executable["main"](nothing)
    relaxpy.register_func("test.nobody", lambda value: value)
    try:
        with pytest.raises(RuntimeCheckError, match="division by zero"):
            executable["main"](nothing)
        assert executable["main"](relaxpy.runtime.ShapeTuple((7, 2))) == 3
    finally:
        relaxpy.runtime.remove_global_func("test.nobody")


Fails = texts.module("""
@impure
def main(x: R.Tensor) -> R.Object:
    def check(v: R.Tensor) -> f32[2]:
        w = R.match_cast(v, f32[2])
        return w
    a = check(x)
    return R.call_packed("test.note_a", a, sinfo_args=R.Object)
""")


@TARGETS
@pytest.mark.rule("EV-24", "MC-18")
def test_an_error_ends_the_whole_program(log: list[object], target: str) -> None:
    executable = relaxpy.compile(Fails, target)
    with pytest.raises(MatchCastError):
        executable["main"](np.zeros(3, "float32"))
    assert log == []
    executable["main"](np.zeros(2, "float32"))
    assert len(log) == 1


@pytest.mark.rule("EV-24")
def test_no_construct_observes_an_error() -> None:
    text = """
@R.function
def main(x: R.Tensor((2,), "float32")):
    try:
        y = x
    except ValueError:
        y = x
    return y
"""
    with pytest.raises(ParseError, match="try"):
        from_source(text)


InPlace = texts.module("""
@kernel
def double(x: f32[4]):
    for i in S(4, "double"):
        x[vi] = x[vi] * T.float32(2)

def main(x: f32[4]) -> f32[4]:
    return R.call_tir_inplace(cls.double, (x,), inplace_indices=[0], out_sinfo=f32[4])
""")


@TARGETS
@pytest.mark.rule("EV-16", "EV-1")
def test_an_operator_may_change_and_give_back_its_argument(target: str) -> None:
    x = np.ones(4, "float32")
    y = relaxpy.compile(InPlace, target)["main"](x)
    assert y is x
    np.testing.assert_array_equal(x, np.full(4, 2))


ZEROS = "R.const([0, 0, 0, 0], 'float32')"
Accumulates = texts.module(f"""
@kernel
def accumulate(x: f32[4], y: f32[4]):
    for i in S(4, "sum"):
        y[vi] = y[vi] + x[vi]

@impure
def tensor(x: f32[4], y: f32[4]):
    _ = cls.accumulate(x, y)
    return R.add(y, y)

@impure
def field(x: f32[4], y: R.Tuple(R.Tuple(f32[4]), f32[4])):
    _ = cls.accumulate(x, y[0][0])
    return R.add(y[0][0], R.add(y[0][0], y[1]))

@impure
def closure(x: f32[4], y: f32[4]):
    @R.function(pure=False)
    def more(z: f32[4]):
        _ = cls.accumulate(z, y)
        return z
    a = more(x)
    return R.add(a, y)

@impure
def twice(x: f32[4], y: f32[4]):
    _ = cls.accumulate(x, y)
    _ = cls.accumulate(y, y)
    return y

@impure
def call(x: f32[4]):
    return cls.tensor(x, {ZEROS}), cls.field(x, (({ZEROS},), {ZEROS}))

@impure
def own_tuple(x: f32[4]):
    t = (({ZEROS},), {ZEROS})
    _ = cls.accumulate(x, t[0][0])
    return R.add(t[0][0], R.add(t[0][0], t[1]))
""")


@TARGETS
@pytest.mark.rule("EV-2", "EV-21", "VAL-12")
def test_code_sees_its_changes_of_tensors_from_constants(target: str) -> None:
    ones, zeros = np.ones(4, "float32"), np.zeros(4, "float32")
    mod = Accumulates.clone()
    mod["call"] = mod["call"].inline_functions({n: mod[n] for n in ("tensor", "field")})
    names = "tensor", "closure", "twice", "field"
    for name, value in zip(names, (*[zeros] * 3, ((zeros,), zeros)), strict=True):
        mod = relax.transform.BindParams(name, {"y": value})(mod)
    executable = relaxpy.compile(mod, target)
    for _ in range(2):
        results = [executable[name](ones) for name in (*names, "own_tuple")]
        for result in (*results, *executable["call"](ones)):
            np.testing.assert_array_equal(result, 2 * ones)


@pytest.mark.rule("TOP-8")
def test_a_pass_may_add_functions_and_rewrite_kernels() -> None:
    @module_pass(opt_level=0)
    def publish(mod: relaxpy.IRModule, ctx: PassContext) -> relaxpy.IRModule:
        changed = mod.clone()
        kernel = mod["double"].with_attr("tir.noalias", True)
        changed["double"] = kernel
        changed["public"] = kernel.with_attr("global_symbol", "public")
        return changed

    changed = publish(InPlace)
    x = np.ones(4, "float32")
    relaxpy.compile(changed)["public"](x)
    np.testing.assert_array_equal(x, np.full(4, 2))
    assert "public" not in InPlace
    assert "tir.noalias" not in InPlace["double"].attrs


@pytest.mark.rule("TOP-7")
def test_a_kernel_sees_global_names_and_nothing_else_of_relax() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    @T.prim_func
    def kernel(y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = {value}
"""
    module = from_source(text.format(value="T.float32(1)"))
    y = np.zeros(4, "float32")
    relaxpy.compile(module)["kernel"](y)
    np.testing.assert_array_equal(y, np.ones(4))
    with pytest.raises(ParseError, match="x"):
        from_source(text.format(value="x[i]"))
