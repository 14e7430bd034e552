"""CallTIRRewrite, LowerRuntimeBuiltin, VMShapeLower and the pipelines that they are in."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir
from relaxpy.errors import MatchCastError, MisuseError, RuntimeCheckError, TransformError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax import transform
from relaxpy.relax.testing.runtime_builtin import MakeShapeCode, MatchShapeCode
from relaxpy.script import from_source, ir as I, relax as R
from relaxpy.transform import explain, get_pipeline
from tests.ir.passes.before_after import check, stays
from tests.ir.relax import texts

HEADER = """
@I.ir_module
class Module:
"""
KERNEL = """
    @T.prim_func
    def fill(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.block("fill"):
                vi = T.axis.spatial(3, i)
                A[vi] = B[vi] + T.float32(1)
"""


def module(signature: str, body: str, kernels: str = "") -> IRModule:
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    return from_source(
        f"{HEADER}{kernels}\n    @R.function\n    def main({signature}:\n"
        f'        R.func_attr({{"relax.force_pure": True}})\n        cls = Module\n{lines}\n'
    )


def shape_check(value: str, heap: str, *codes: int) -> str:
    numbers = ", ".join(f"R.prim_value({code})" for code in codes)
    return (
        f'R.call_packed("vm.builtin.match_shape", {value}, {heap}, {numbers}, R.str(""), '
        "sinfo_args=R.Tuple())"
    )


def kind_check(name: str, value: str, *args: str) -> str:
    listed = ", ".join((value, *args))
    return f'R.call_packed("vm.builtin.{name}", {listed}, R.str(""), sinfo_args=R.Tuple())'


def heap_of(count: int) -> str:
    return (
        'R.call_builtin_with_ctx("vm.builtin.alloc_shape_heap", '
        f'(R.prim_value({count}),), sinfo_args=R.Tensor(ndim=1, dtype="int64"))'
    )


# ---- CallTIRRewrite


def test_a_kernel_that_writes_into_an_argument_returns_it() -> None:
    pair = 'x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32"))'
    sinfo = 'R.Tensor((3,), "float32")'
    before = module(pair, f"z = R.call_tir_inplace(cls.fill, (x, y), 0, {sinfo})\nreturn z", KERNEL)
    after = module(pair, "_ = cls.fill(x, y)\nz = x\nreturn z", KERNEL)
    check(transform.CallTIRRewrite(), before, after, np.zeros(3, "float32"), np.ones(3, "float32"))


def test_a_packed_function_gets_its_outputs() -> None:
    sinfo = '[R.Tensor((2,), "float32"), R.Tensor((2,), "int32")]'
    before = module(
        'x: R.Tensor((2,), "float32"))',
        f'z = R.call_dps_packed("test.lowering.two", (x,), {sinfo})\nreturn z',
    )

    def two(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> str:
        a[...], b[...] = x + 1, 7
        return "ignored"

    relaxpy.register_func("test.lowering.two", two, override=True)
    found = transform.CallTIRRewrite()(before)
    for target in ("numpy", "reference"):
        first, second = relaxpy.compile(found, target=target)["main"](np.ones(2, "float32"))
        assert first.tolist() == [2, 2]
        assert second.tolist() == [7, 7]


def test_calls_in_dataflow_blocks_are_refused() -> None:
    body = """
with R.dataflow():
    z = R.call_tir(cls.fill, (x,), R.Tensor((3,), "float32"))
    R.output(z)
return z
"""
    mod = module('x: R.Tensor((3,), "float32"))', body, KERNEL)
    with pytest.raises(TransformError, match="apply ToNonDataflow first"):
        transform.CallTIRRewrite()(mod)


# ---- LowerRuntimeBuiltin


def test_the_shape_of_a_reshape_may_be_computed() -> None:
    signature = 'x: R.Tensor((6,), "float32"), s: R.Tensor((2,), "int64"))'
    before = module(signature, "t = R.tensor_to_shape(s)\ny = R.reshape(x, t)\nreturn y")
    after = module(
        signature,
        """
t = R.call_packed("vm.builtin.tensor_to_shape", s, sinfo_args=R.Shape(ndim=2))
y = R.call_packed("vm.builtin.reshape", x, t, sinfo_args=R.Tensor(t, "float32"))
return y
""",
    )
    data = np.arange(6, dtype="float32")
    check(transform.LowerRuntimeBuiltin(), before, after, data, np.array([2, 3]))
    assert transform.VMBuiltinLower is transform.LowerRuntimeBuiltin
    wrong = relaxpy.compile(after)["main"]
    with pytest.raises(RuntimeCheckError, match="does not keep the elements"):
        wrong(data, np.array([2, 4]))


@pytest.mark.rule("OPT-11")
def test_a_lowered_reshape_is_a_new_tensor() -> None:
    signature = 'x: R.Tensor((6,), "float32"), s: R.Shape(ndim=2))'
    lowered = transform.LowerRuntimeBuiltin()(module(signature, "y = R.reshape(x, s)\nreturn y"))
    data = np.arange(6, dtype="float32")
    result = relaxpy.compile(lowered)["main"](data, relaxpy.runtime.ShapeTuple([2, 3]))
    data[:] = 0
    assert result.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_tensor_without_storage_is_an_error() -> None:
    mod = module(
        'x: R.Tensor((3,), "float32"))',
        'a = R.builtin.alloc_tensor(R.shape([3]), "float32", 0)\nreturn a',
    )
    with pytest.raises(TransformError, match="apply LowerAllocTensor first"):
        transform.LowerRuntimeBuiltin()(mod)


# ---- VMShapeLower


LOWER = transform.VMShapeLower(emit_err_ctx=False)


def test_literal_dimensions_are_compared_without_memory() -> None:
    check(
        LOWER,
        module("x: R.Shape([1, 2]), y: R.Shape)", "return x"),
        module(
            "x: R.Shape([1, 2]), y: R.Shape)",
            f"""
heap = R.null_value()
_ = {kind_check("check_shape_info", "x", "R.prim_value(2)")}
_1 = {kind_check("check_shape_info", "y", "R.prim_value(-1)")}
_2 = {shape_check("x", "heap", 2, 0, 1, 0, 2)}
return x
""",
        ),
        relaxpy.runtime.ShapeTuple([1, 2]),
        relaxpy.runtime.ShapeTuple([5]),
    )


def test_casts_store_dimensions_and_kernels_compute_expressions() -> None:
    signature = 'x: R.Tensor(["n", "m"], "float32"), y: R.Tensor(ndim=3)) -> R.Shape(ndim=3)'
    cast = "z = R.match_cast(y, R.Tensor([k, m, k + 1]))"
    before = module(
        signature, f"m = T.int64()\nk = T.int64()\n{cast}\nreturn R.shape([k + 1, m, 2])"
    )
    made = ", ".join(f"R.prim_value({code})" for code in (3, 1, 3, 1, 1, 0, 2))
    kernel = """
    @T.prim_func(private=True)
    def shape_func(H: T.Buffer(T.int64(4), "int64")):
        T.func_attr({"tir.is_host_func": True})
        H[T.int64(3)] = H[T.int64(2)] + T.int64(1)
"""
    after = module(
        signature,
        f"""
m = T.int64()
k = T.int64()
heap = {heap_of(4)}
_ = {kind_check("check_tensor_info", "x", "R.prim_value(2)", 'R.dtype("float32")')}
_1 = {kind_check("check_tensor_info", "y", "R.prim_value(3)", 'R.dtype("")')}
_2 = {shape_check("x", "heap", 2, 1, 0, 1, 1)}
_3 = {shape_check("y", "heap", 3, 1, 2, 3, 1, 2, 0)}
_4 = cls.shape_func(heap)
_5 = {shape_check("y", "heap", 3, 3, 2, 3, 1, 3, 3)}
{cast}
s = R.call_packed("vm.builtin.make_shape", heap, {made}, sinfo_args=R.Shape(ndim=3))
return s
""",
        kernel,
    )
    data = np.zeros((2, 3), "float32"), np.zeros((4, 3, 5), "int8")
    assert_structural_equal(LOWER(before), after)
    for target in ("numpy", "reference"):
        assert relaxpy.compile(LOWER(before), target=target)["main"](*data) == (5, 3, 2)
        with pytest.raises(MatchCastError):
            relaxpy.compile(LOWER(before), target=target)["main"](data[0], data[1][:, :, 1:])


def test_weights_are_checked_only_if_their_shapes_are_symbolic() -> None:
    signature = (
        'x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32"), v: R.Tensor(("n",), "int8"))'
    )
    lowered = LOWER(
        from_source(
            f"{HEADER}\n    @R.function\n    def main({signature}:\n"
            '        R.func_attr({"num_input": 1})\n        return x\n'
        )
    )
    checked = [
        call.args[0].name_hint
        for call in walk(lowered["main"])
        if isinstance(call, rx.Call)
        and isinstance(call.op, rx.ExternFunc)
        and call.op.global_symbol == "vm.builtin.check_tensor_info"
    ]
    assert checked == ["x", "v"]


def test_errors_have_a_context_if_they_are_to_have_one() -> None:
    mod = transform.VMShapeLower()(module('x: R.Tensor((2,), "float32"))', "return x"))
    texts = {node.value for node in walk(mod["main"]) if isinstance(node, rx.StringImm)}
    assert texts == {
        'ErrorContext(fn=main, loc=param[0], param=x, annotation=R.Tensor((2,), dtype="float32")) '
    }


def test_a_function_without_shapes_stays() -> None:
    stays(LOWER, module(")", "return R.const(1)"))


def test_a_cast_in_a_dataflow_block_is_an_error() -> None:
    body = """
with R.dataflow():
    n = T.int64()
    y = R.match_cast(x, R.Tensor((n,), "float32"))
    z = R.add(y, y)
    R.output(z)
return z
"""
    with pytest.raises(TransformError, match="apply ToNonDataflow first"):
        LOWER(module('x: R.Tensor(ndim=1, dtype="float32"))', body))


# ---- the functions of the runtime


def builtin(name: str, *args: object) -> object:
    return relaxpy.get_global_func(f"vm.builtin.{name}")(*args)


def test_shapes_pass_through_memory() -> None:
    heap = builtin("alloc_shape_heap", None, 2)
    tensor = np.zeros((4, 5, 6), "int8")
    store, skip = MatchShapeCode.STORE_TO_HEAP, MatchShapeCode.NO_OP
    builtin("match_shape", tensor, heap, 3, store, 0, skip, 0, store, 1, "")
    load, literal = MakeShapeCode.LOAD_SHAPE, MakeShapeCode.USE_IMM
    assert builtin("make_shape", heap, 3, load, 1, literal, 9, load, 0) == (6, 9, 4)
    equal = MatchShapeCode.ASSERT_EQUAL_TO_LOAD
    builtin("match_prim_value", 4, heap, equal, 0, "")
    with pytest.raises(MatchCastError, match="here: the value is 5, expected 4"):
        builtin("match_prim_value", 5, heap, equal, 0, "here: ")


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (
            "check_tensor_info",
            ((), 2, relaxpy.DataType("int8"), "c "),
            "c expected a tensor, found",
        ),
        ("check_tensor_info", (np.zeros(2), 2, relaxpy.DataType("float64"), ""), "of ndim 2"),
        (
            "check_tensor_info",
            (np.zeros(2), 1, relaxpy.DataType("int8"), ""),
            "^expected a tensor of dtype int8, found",
        ),
        ("check_tensor_info", (np.zeros(2), 1, "int8", "here"), "^check failed: here expected"),
        ("check_tensor_info", (np.zeros(2), 2, "", ""), "^expected a tensor of ndim 2"),
        ("check_tensor_info", (np.zeros(2), 2, "here"), "here expected a tensor of ndim 2"),
        ("check_shape_info", ((1, 2), 3, "here"), "here expected a shape of ndim 3"),
        ("check_shape_info", (np.zeros(2), -1, ""), "expected a shape, found"),
        ("check_prim_value_info", (1.5, relaxpy.DataType("int64"), ""), "int64 prim value"),
        ("check_tuple_info", ((1,), 2, ""), "a tuple of 2 elements"),
        ("check_func_info", (1, ""), "expected a function"),
        ("match_shape", (np.zeros(2), None, 2, 0, 2, 0, 2, ""), "expected 2 dimensions"),
        ("match_shape", (np.zeros(2), None, 1, 0, 3, ""), "dimension 0 is 2, expected 3"),
    ],
)
def test_checks_refuse_other_values(name: str, args: tuple[object, ...], message: str) -> None:
    with pytest.raises(MatchCastError, match=message):
        builtin(name, *args)


def test_python_functions_are_called_by_name() -> None:
    builtin("register_py_func", "add", lambda a, b: a + b)
    assert builtin("call_py_func", "add", (1, 2)) == 3
    builtin("clear_py_func_registry")
    with pytest.raises(relaxpy.errors.UnknownPackedFuncError):
        builtin("get_py_func", "add")


# ---- pipelines


def test_the_pipelines_have_the_passes_of_their_names() -> None:
    names = [run.name for run in explain(module("x: R.Tensor((2,)))", "return x"), "default_build")]
    assert names[1:] == [
        "LegalizeOps",
        "RewriteDataflowReshape",
        "ToNonDataflow",
        "RemovePurityChecking",
        "CallTIRRewrite",
        "StaticPlanBlockMemory",
        "LowerAllocTensor",
        "KillAfterLastUse",
        "LowerRuntimeBuiltin",
        "ComputePrimValue",
        "VMShapeLower",
        "AttachGlobalSymbol",
    ]


def test_a_lowered_module_runs_without_more_passes() -> None:
    mod = module('x: R.Tensor(("n",), "float32"))', "y = R.exp(x)\nz = R.add(y, x)\nreturn z")
    lowered = relax.get_default_pipeline("llvm")(mod)
    vm = relax.VirtualMachine(relaxpy.compile(lowered, relax_pipeline=None), relaxpy.cpu())
    for size in (1, 5):
        data = np.arange(size, dtype="float32")
        np.testing.assert_allclose(vm["main"](data), np.exp(data) + data, rtol=1e-6)


def test_an_unknown_target_has_no_pipeline() -> None:
    with pytest.raises(MisuseError, match="there is no target 'cuda'"):
        relax.get_default_pipeline("cuda -arch=sm_80")


@pytest.mark.rule("DER-45")
@pytest.mark.filterwarnings("error")
def test_a_shape_that_is_returned_is_as_precise_as_the_result() -> None:
    mod = from_source("""
@R.function
def main(x: R.Tensor(("n", 2), "float32")):
    n = T.int64()
    return R.shape([n, n * 2])
""")
    executable = relaxpy.compile(mod, relax_pipeline="default_build")
    assert executable["main"](np.zeros((3, 2), "float32")) == (3, 6)


def test_views_are_created_by_the_runtime() -> None:
    Before = texts.module("""
    def main(x: R.Tensor([4096], "uint8"), y: R.Tensor(ndim=2, dtype="float32")):
        a = R.memory.view(x, R.shape([512]), R.dtype("int32"))
        b = R.memory.view(
            x, R.shape([16, 64]), R.dtype("float16"), relative_byte_offset=R.prim_value(2048)
        )
        c = R.memory.view(y, dtype=R.dtype("int32"))
        return (a, b, c)
    """)
    create = R.ExternFunc(
        "runtime.TVMTensorCreateView",
        R.Callable(derive_func="tvm.relax.struct_info.infer_view_sinfo", purity=True),
    )

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor([4096], "uint8"), y: R.Tensor(ndim=2, dtype="float32")):
            a = create(x, R.shape([512]), R.dtype("int32"), R.prim_value(0))
            b = create(x, R.shape([16, 64]), R.dtype("float16"), R.prim_value(2048))
            c = R.memory.view(y, dtype=R.dtype("int32"))
            return (a, b, c)

    after = transform.LowerRuntimeBuiltin()(Before)
    assert_structural_equal(after, Expected)
    assert "relax.force_pure" not in after["main"].attrs
    again = from_source(after.script())
    assert_structural_equal(again, after)
    assert_structural_equal(relaxpy.ir.load_json(relaxpy.ir.save_json(after)), after)
    rng = np.random.default_rng(0)
    data = rng.integers(0, 60, 4096).astype("uint8")
    floats = rng.random((2, 3), dtype="float32")
    found = relaxpy.compile(after)["main"](data, floats)
    np.testing.assert_array_equal(found[0], data[:2048].view("int32"))
    np.testing.assert_array_equal(found[1], data[2048:].view("float16").reshape(16, 64))
    np.testing.assert_array_equal(found[2], floats.view("int32"))


def test_the_datatype_of_a_view_may_be_a_variable() -> None:
    @R.function(private=True)
    def main(x: R.Tensor([4], "float32"), unknown: R.Object):
        dtype = R.dtype("int32")
        y = R.memory.view(x, dtype=dtype)
        z = R.memory.view(x, dtype=unknown)
        return (y, z)

    first, second = main.struct_info.ret.fields
    assert str(first) == 'R.Tensor((4,), dtype="int32")'
    assert str(second) == "R.Tensor((4,))"


OnDevice = texts.module("""
I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

def main(x: R.Tensor((3,), "float32", "llvm:1"), y: R.Tensor(("n",), "float32", "llvm:1")):
    a = R.exp(x)
    b = R.add(a, x)
    return (b, R.negative(y))
""")


def test_new_tensors_are_on_the_device_of_the_result_in_each_step_of_lowering() -> None:
    step = OnDevice
    for lowering in relax.get_default_pipeline().passes:
        step = lowering(step)
        fields = step["main"].struct_info.ret.fields
        assert [str(sinfo.vdevice) for sinfo in fields] == ["llvm:1"] * 2, lowering
        assert_structural_equal(from_source(step.script()), step)
    args = np.ones(3, "float32"), np.ones(2, "float32")
    for one, other in zip(
        relaxpy.compile(OnDevice, "reference")["main"](*args),
        relaxpy.compile(step, "reference", relax_pipeline=None)["main"](*args),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("pipeline", ["default", "default_build", "zero"])
def test_dimensions_over_variables_of_one_name_keep_apart(pipeline: str) -> None:
    first, second = tir.Var("n", "int64"), tir.Var("n", "int64")
    sizes = [
        expr
        for a, b in ((first, second), (second, first))
        for expr in (a, a * a * b, a * b * b, a + b * 2, a // b, tir.max(a - b, 0), a * 3 % b + a)
    ]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((first, second), "float32"))
    with builder.function("main", [x]):
        shapes = [relax.ShapeExpr([size]) for size in sizes]
        builder.emit_func_output(builder.emit(relax.Tuple(shapes)))
    program = relaxpy.compile(get_pipeline(pipeline)(builder.get()), "numpy")
    found = [next(iter(shape)) for shape in program["main"](np.zeros((2, 3), "float32"))]
    assert found == [_number(size, {first: 2, second: 3}) for size in sizes]


def _number(size: tir.PrimExpr, values: dict[tir.Var, int]) -> int:
    if isinstance(size, tir.IntImm):
        return size.value
    if isinstance(size, tir.Var):
        return values[size]
    a, b = (_number(operand, values) for operand in (size.a, size.b))
    match size:
        case tir.Add():
            return a + b
        case tir.Sub():
            return a - b
        case tir.Mul():
            return a * b
        case tir.FloorDiv():
            return a // b
        case tir.FloorMod():
            return a % b
        case _:
            return max(a, b)
