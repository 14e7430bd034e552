"""Newer spellings, devices, what TVM's builder is called by, and intrinsics of hardware."""

import ast
import textwrap
from types import SimpleNamespace
from typing import Annotated, TypeVar

import numpy as np
import pytest

from relaxpy import DataType, IRModule, VirtualMachine, compile, relax, te
from relaxpy.errors import CompileError, MisuseError, ParseError, RelaxpyError
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.global_info import DummyGlobalInfo, VDevice
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import TensorStructInfo
from relaxpy.ir.serialize import load_json, save_json
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source, ir as I, relax as R, s_tir, tir as T, tirx
from relaxpy.script.language.hardware import INTRINSICS
from relaxpy.script.parser.graph.expressions import GraphEvaluator
from relaxpy.script.parser.graph.signature_reader import SignatureReader
from relaxpy.script.parser.source import BUILTINS, Report, Scope, parse_text
from tests.script.marked import check_marks


def read(text: str, **names: object) -> object:
    found = from_source(textwrap.dedent(text), extra_vars={"I": I, "R": R, "T": T, **names})
    assert_structural_equal(from_source(found.script(show_meta=True)), found)
    return found


def graph(text: str) -> rx.Function:
    found = read(text)
    assert isinstance(found, rx.Function)
    return found


# --- newer names


def test_the_newer_name_of_kernels() -> None:
    func = read("""
        from tvm.script import ir as I, s_tir as Ts, tirx as T
        import tvm
        import tvm.script.parser, relaxpy

        @Ts.function
        def main(A: T.Tensor((4,), "float32"), B: T.Buffer((4,), "float32")):
            T.func_attr({"tirx.noalias": True})
            size = T.bind(4)
            for i in range(size):
                with Ts.sblock("copy"):
                    vi = T.axis.spatial(4, i)
                    T.sblock_attr({"mark": 1})
                    C = T.sblock_alloc_buffer((4,), "float32")
                    B[vi] = A[vi]
    """)
    assert isinstance(func, PrimFunc)
    assert func.attrs["tir.noalias"]
    assert "size: T.int32 = 4" in func.script()
    assert 'with T.block("copy"):' in func.script()
    assert tirx is s_tir is T


def test_kernels_and_modules_of_the_newer_dialect() -> None:
    read("""
        @T.inline
        def fill(A):
            for i in T.serial(4):
                A[i] = T.float32(1)

        @I.ir_module(s_tir=True)
        class Module:
            @T.prim_func(s_tir=True)
            def main(A: T.Buffer((4,), "float32")):
                fill(A)
    """)


def test_variables_of_annotations_may_be_made_outside() -> None:
    n, m = I.dynamic("n"), T.dynamic("m", dtype="int32")

    @I.ir_module
    class Outside:
        @T.prim_func
        def copy(A: T.Buffer((m, 2), "float32"), B: T.Buffer((m, 2), "float32")):
            for i, j in T.grid(m, 2):
                B[i, j] = A[i, j]

        @R.function
        def main(x: R.Tensor((n, 2), "float32")) -> R.Tensor((n, 2), "float32"):
            return R.call_tir(Outside.copy, (x,), out_sinfo=R.Tensor((n, 2), "float32"))

    inside = read("""
        from tvm.script import ir as I, relax as R, tir as T

        @I.ir_module
        class Inside:
            @T.prim_func
            def copy(a: T.handle, b: T.handle):
                m = T.int32()
                A = T.match_buffer(a, (m, 2))
                B = T.match_buffer(b, (m, 2))
                for i, j in T.grid(m, 2):
                    B[i, j] = A[i, j]

            @R.function
            def main(x: R.Tensor(("n", 2), "float32")) -> R.Tensor(("n", 2), "float32"):
                n = T.int64()
                return R.call_tir(Inside.copy, (x,), out_sinfo=R.Tensor((n, 2), "float32"))
    """)
    assert_structural_equal(inside, Outside)


@pytest.mark.rule("SC-12", "AST-21")
def test_datatypes_annotate_scalars() -> None:
    func = graph("""
        @R.function
        def main(
            x: R.Tensor([n * 2, 1], "float32"), n: T.int64, k: T.int64, eps: T.float16,
            last: R.Shape([n + 1])
        ) -> R.Tuple(R.Shape([n]), T.float16):
            return (R.shape([n]), eps)
    """)
    sinfos = [str(p.struct_info) for p in func.params]
    value = func.params[1].struct_info.value  # type: ignore[union-attr]
    assert value is func.params[0].struct_info.get_shape()[0].a  # type: ignore[union-attr]
    assert sinfos[1:] == [
        "R.Prim(value=n)",
        'R.Prim("int64")',
        'R.Prim("float16")',
        "R.Shape([n + 1])",
    ]
    with pytest.raises(ParseError, match="expected a scalar expression, found Var n"):
        from_source("""
@R.function
def main(n: T.int32, x: R.Tensor([n], "float32")):
    return x
""")
    with pytest.raises(ParseError, match="found a datatype"):
        from_source("@R.function\ndef main(n: T.void):\n    return n\n")


@pytest.mark.rule("SC-12")
def test_scalars_of_annotations_are_in_scope_in_the_body() -> None:
    func = graph("""
        @R.function
        def main(n: T.int64, x: R.Tensor([n], "float32")) -> R.Tensor([n + 1], "float32"):
            @R.function
            def inner(n: T.int64, y: R.Tensor([n], "float32")):
                return R.concat([y, R.zeros([n - n + 1], "float32")], axis=0)

            return inner(n, x)
    """)
    assert isinstance(func.body, rx.SeqExpr)
    inner = func.body.blocks[0].bindings[0].value
    assert isinstance(inner, rx.Function)
    assert inner.params[0].struct_info != func.params[0].struct_info
    vm = VirtualMachine(compile(IRModule({"main": func})))
    np.testing.assert_array_equal(vm["main"](2, np.ones(2, "float32")), [1, 1, 0])


def test_python_values_in_graphs_and_devices_of_graphs() -> None:
    mod = read("""
        @I.ir_module
        class Module:
            I.module_global_infos({"vdevice": [R.vdevice("llvm")], "d": [R.dummy_global_info()]})

            @R.function
            def main(x: R.Tensor(("n",), "float32")):
                n = T.int64()
                size = I.meta_var(n)
                return R.reshape(x, R.shape([T.meta_var(size), 1]))
    """)
    assert isinstance(mod, IRModule)
    assert mod.global_infos == {"vdevice": (VDevice("llvm"),), "d": (DummyGlobalInfo(),)}
    [block] = mod["main"].body.blocks
    assert isinstance(block.bindings[0].value, rx.PrimValue)


def test_kernels_are_called_with_all_their_parameters() -> None:
    mod = read("""
        @I.ir_module
        class Module:
            @T.prim_func
            def copy(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32")):
                for i in range(2):
                    B[i] = A[i]

            @R.function(pure=False)
            def main(x: R.Tensor((2,), "float32")):
                y = R.zeros((2,), "float32")
                _: R.Tuple() = R.call_tir_packed(Module.copy, (x, y))
                return y
    """)
    assert isinstance(mod, IRModule)
    assert "cls.copy(x, y)" in mod.script()
    vm = VirtualMachine(compile(mod))
    np.testing.assert_array_equal(vm["main"](np.float32([1, 2])), [1, 2])
    with pytest.raises(MisuseError, match="a kernel is a global variable"):
        relax.call_tir_packed("copy", ())  # type: ignore[arg-type]


def test_kernels_of_tensor_expressions_have_newer_options() -> None:
    def double(x: te.Tensor) -> te.Tensor:
        return te.compute((2,), lambda i: x[i] * 2)

    text = """
        @I.ir_module
        class Module:
            @R.function
            def main(x: R.Tensor((2,), "float32")):
                return R.emit_te(double, x, function_name_hint="twice", function_attrs={"a": 1})
    """
    mod = read(text, double=double)
    assert isinstance(mod, IRModule)
    assert mod["twice"].attrs["a"] == 1
    builder = BlockBuilder()
    x = rx.Var("x", TensorStructInfo((2,), "float32"))
    with builder.function("main", [x]):
        made = {"function_name_hint": "twice", "function_attrs": {"a": 1}}
        builder.emit_func_output(builder.emit_te(double, x, **made))
    assert_structural_equal(builder.get(), mod)


def test_types_of_scalars_and_names_of_variables() -> None:
    n = tir.Var("n", ty="int64")
    assert n.ty == n.type_annotation == PrimType(DataType("int64"))
    assert (n + 1).ty == PrimType(DataType("int64"))
    assert (n < 1).ty.dtype == "bool"
    assert tir.Var("p", ty=PointerType(PrimType(DataType("int8")))).ty.storage_scope == ""
    x = rx.Var("x", TensorStructInfo((n,), "float32"))
    assert x.name == x.name_hint == "x"
    assert "y: R.Tensor" not in sized_twice.script(show_all_ty=False)
    assert "y: R.Tensor" in sized_twice.script(show_all_ty=True)


@R.function
def sized_twice(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    y = R.add(x, x)
    return R.add(y, y)


@pytest.mark.parametrize(
    "line",
    [
        "import numpy",
        "import tvm as t",
        "import os, tvm",
        "from typing import Any",
        "from tvm import relax",
    ],
)
def test_a_text_imports_nothing_else(line: str) -> None:
    with pytest.raises(ParseError, match="imports nothing but the namespaces"):
        from_source(f"{line}\n@R.function\ndef main(x: R.Tensor):\n    return x\n")


# --- TypeVar and type parameters

size = TypeVar("size")


@R.function
def sized(x: R.Tensor((size, 4), "float32"), y: R.Tensor((size,), "float32")) -> R.Tensor((size,)):
    return R.zeros((size,), "float32")


@pytest.mark.rule("SC-12", "WF-6a")
def test_a_type_variable_of_python_names_a_shape_variable() -> None:
    first, second = (p.struct_info.get_shape()[0] for p in sized.params)
    assert isinstance(first, tir.Var)
    assert first is second
    assert (first.name, first.dtype) == ("size", "int64")
    assert sized.ret_struct_info.shape.values == (first,)
    assert_structural_equal(from_source(sized.script()), sized)
    func = graph("""
        from typing import Annotated, TypeVar
        n = TypeVar("n")

        @R.function
        def main(x: Annotated[R.Tensor, (n * 2,), "int8"], y: R.Tensor((n,), "int8")):
            m = TypeVar("m")
            z = R.match_cast(y, R.Tensor((m,), "int8"))
            return R.shape([n, m])
    """)
    assert str(func.params[0].struct_info) == 'R.Tensor((n * 2,), dtype="int8")'


def test_a_type_variable_in_a_kernel_names_a_size() -> None:
    @T.prim_func
    def kernel(A: T.Buffer((size,), "float32"), b: T.handle):
        m = TypeVar("m")
        B = T.match_buffer(b, (m, size), "float32")
        for i in range(size):
            A[i] = B[0, i]

    assert isinstance(kernel, PrimFunc)
    assert_structural_equal(from_source(kernel.script()), kernel)
    n = kernel.buffer_map[kernel.params[0]].shape[0]
    assert (n.name, n.dtype) == ("size", "int64")
    assert kernel.buffer_map[kernel.params[1]].shape[1] is n


def with_type_params(text: str, *names: str) -> ast.FunctionDef:
    """The function in `text` as `def f[names](...)` would be read on a Python that has these."""
    [node] = ast.parse(textwrap.dedent(text)).body
    assert isinstance(node, ast.FunctionDef)
    node.type_params = [SimpleNamespace(name=name) for name in names]  # type: ignore[attr-defined]
    return node


@pytest.mark.rule("SC-12")
def test_type_parameters_of_a_function_are_its_shape_variables() -> None:
    text = "def f(x: R.Tensor((n, 4), 'float32'), y: R.Tensor(('n * 2',))) -> R.Tensor((n,)): ..."
    node = with_type_params(text, "n")
    report = Report()
    values = GraphEvaluator(parse_text(text, "<test>"), Scope({"R": R, "T": T}, BUILTINS))
    found = SignatureReader(values, report).read(node)
    assert not report.errors
    assert list(found.shape_vars) == ["n"]
    n = found.shape_vars["n"]
    assert [str(p.struct_info) for p in found.params] == [
        'R.Tensor((n, 4), dtype="float32")',
        "R.Tensor((n * 2,))",
    ]
    assert found.params[0].struct_info.get_shape()[0] is n  # type: ignore[union-attr,index]
    assert found.names["n"] is n


def test_what_python_evaluates_of_such_a_function_is_not_an_error() -> None:
    n = TypeVar("n")
    assert R.Tensor((n, 4), "float32").shape == ("n", 4)
    assert R.Shape([n]).values == ("n",)

    @R.function
    def f(x: Annotated[R.Tensor, (n, 4), "float32"]) -> R.Tensor((n, 4), "float32"):
        return x

    assert f.ret_struct_info == f.params[0].struct_info


# --- devices


DEVICES = """
@I.ir_module
class Module:
    I.module_attrs({"version": 3})
    I.module_global_infos({
        "vdevice": [
            I.vdevice("llvm"), I.vdevice("cuda", 1), I.vdevice("cuda", 0, "shared"),
            I.vdevice({"kind": "metal", "max": 8}),
        ],
        "dummy": [I.dummy_global_info()],
    })

    @R.function
    def main(
        a: R.Tensor((4,), "float32", "cuda"),
        b: R.Tensor((4,), "float32", "cuda:1"),
        c: R.Tensor((4,), "float32", vdevice="vdevice:0"),
        d: R.Tensor((4,), "float32", I.vdevice("rocm", 2)),
        e: R.Tensor((4,), "float32", "metal:0"),
    ):
        f: R.Tensor((4,), "float32", "cuda:1") = R.exp(b)
        return f
"""


def test_devices_of_a_module() -> None:
    mod = read(DEVICES)
    assert isinstance(mod, IRModule)
    llvm, cuda, shared, metal = mod.global_infos["vdevice"]
    assert mod.global_infos["dummy"] == (DummyGlobalInfo(),)
    assert isinstance(metal, VDevice)
    assert (metal.kind, str(cuda)) == ("metal", "cuda:1")
    main = mod["main"]
    assert isinstance(main, rx.Function)
    found = [p.struct_info.vdevice for p in main.params]  # type: ignore[union-attr]
    assert found == [cuda, shared, llvm, VDevice("rocm", 2), metal]
    assert_structural_equal(load_json(save_json(mod)), mod)


def test_devices_without_a_module_are_numbers() -> None:
    func = graph("""
        @R.function
        def main(
            x: R.Tensor((4,), "float32", "cuda:1"),
            y: R.Tensor((4,), vdevice=I.vdevice("cuda", 1, "shared")),
        ):
            return x
    """)
    assert func.params[0].struct_info.vdevice == VDevice("cuda", 1)  # type: ignore[union-attr]
    assert rx.as_struct_info(R.Tensor((4,), vdevice="llvm")).vdevice == VDevice("llvm")  # type: ignore[attr-defined]


def test_devices_that_are_none() -> None:
    check_marks("""
        @I.ir_module
        class Module:
            I.module_global_infos({"vdevice": [I.vdevice("cuda", -1)]})
            #                                                    ^^ devices are numbered from 0,
            # ... found -1
            @R.function
            def main(
                x: R.Tensor((4,), "float32", "cuda:x"),
                #                            ^^^^^^^^ a device is its kind and number, found
                # ... 'cuda:x'
                # hint: write "cuda:0"
            ):
                return x
    """)
    with pytest.raises(RelaxpyError, match="the module lists no device 'cuda:2'"):
        from_source(DEVICES.replace('"cuda:1"', '"cuda:2"'))
    with pytest.raises(RelaxpyError, match=r"did you mean 'cuda'"):
        from_source(DEVICES.replace('"cuda:1"', '"cud:1"'))
    with pytest.raises(MisuseError, match="global infos are in a list, found"):
        I.module_global_infos({"vdevice": 5})
    with pytest.raises(MisuseError, match="a target is a string or a table"):
        I.vdevice(5)
    with pytest.raises(MisuseError, match="a memory scope is a string"):
        I.vdevice("cuda", 0, 5)


# --- the words of TVM's builder


def test_a_packed_function_is_an_entry_of_a_module() -> None:
    mod = read("""
        @I.ir_module
        class Module:
            ext = R.ExternFunc("my.function")

            @R.function(pure=False)
            def main(x: R.Tensor((4,), "float32")):
                return Module.ext(x)
    """)
    assert isinstance(mod, IRModule)
    assert isinstance(mod["ext"], rx.ExternFunc)


def test_what_is_emitted_by_name() -> None:
    binding = rx.VarBinding(rx.Var("v", R.Tensor(ndim=1)), R.const([1.0], "float32"))

    @R.function
    def f(x: R.Tensor((4,), "float32"), o: R.Object):
        a = R.emit(R.exp(x))
        n = T.int64()
        b = R.emit_match_cast(o, R.Tensor((n,), "float32"))
        c = R.emit_var_binding(binding)
        return R.tuple(a, b, c, R.ShapeExpr([n]))

    bindings = [b for block in f.body.blocks for b in block.bindings]
    assert [type(b).__name__ for b in bindings] == ["VarBinding", "MatchCast", "VarBinding"]
    assert bindings[2].var.struct_info == TensorStructInfo(dtype="", ndim=1)
    assert_structural_equal(from_source(f.script()), f)
    with pytest.raises(MisuseError, match="expected a VarBinding"):
        R.emit_var_binding(5)


def test_a_kernel_of_tensor_expressions_joins_the_module() -> None:
    te = pytest.importorskip("relaxpy.te")

    def plus(a, value):  # type: ignore[no-untyped-def]
        return te.compute(a.shape, lambda i: a[i] + value)

    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def plus_(A: T.Buffer((4,), "float32")):
            T.evaluate(0)

        @R.function
        def taken(x: R.Tensor((4,), "float32")):
            return x

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                y = R.emit_te(plus, x, 2.0)
                z = R.emit_te(plus, y, 3.0, primfunc_name_hint="taken")
                w = R.emit_te(plus, z, 2.0)
                R.output(w)
            return w

    assert isinstance(Module, IRModule)
    assert [v.name_hint for v in Module.get_global_vars()] == [
        *("plus_", "taken", "main", "plus", "taken1")
    ]
    assert_structural_equal(from_source(Module.script()), Module)
    with pytest.raises(ParseError, match="adds a kernel to the enclosing module"):

        @R.function
        def alone(x: R.Tensor((4,), "float32")):
            return R.emit_te(plus, x, 2.0)

    with pytest.raises(MisuseError, match="emit_te takes a function"):
        R.emit_te(5)


def test_arrays_are_constants() -> None:
    weight = np.arange(4, dtype="float32")

    @R.function
    def f(x: R.Tensor((4,), "float32")):
        y = R.multiply(weight, x)
        return R.add(y, weight)

    calls = [b.value for b in f.body.blocks[0].bindings]
    assert [float(calls[0].args[0].data[3]), float(calls[1].args[1].data[3])] == [3.0, 3.0]
    assert_structural_equal(from_source(f.script()), f)


# --- kernels


def test_reducers_and_loop_variables() -> None:
    n = tir.Var("n", "int32")
    add = T.comm_reducer(lambda x, y: x + y, lambda dtype: tir.FloatImm(dtype, 0.0), name="sum")
    axis = T.iter_var("k", T.Range(0, n), "CommReduce", "")
    assert isinstance(axis, IterVar)
    found = add(tir.Var("f", "float32"), axis=[axis])
    assert isinstance(found, T.Reduce)
    assert T.iter_var(n, (0, 4), "DataPar", "").var is n
    with pytest.raises(MisuseError, match="no kind of iteration variable"):
        T.iter_var("k", None, "nothing", "")
    assert T.var("int64").dtype == "int64"


def test_pointers_and_targets() -> None:
    func = read("""
        @T.prim_func
        def main(p: T.Ptr("float32"), q: T.ptr("int8", "shared")):
            T.func_attr({"target": T.target({"kind": "llvm", "m": 1}), "host": T.target("c")})
            T.func_attr({"both": T.target("cuda", host="llvm")})
            T.func_attr({"tables": T.target({"kind": "cuda"}, host={"kind": "llvm"})})
            T.evaluate(0)
    """)
    assert isinstance(func, PrimFunc)
    assert [p.type_annotation.storage_scope for p in func.params] == ["global", "shared"]
    assert func.attrs["host"] == "c"
    assert func.attrs["both"] == {"kind": "cuda", "host": "llvm"}
    assert func.attrs["tables"] == {"kind": "cuda", "host": {"kind": "llvm"}}
    assert_structural_equal(read(func.script()), func)
    with pytest.raises(MisuseError, match="a target is a string or a table"):
        T.target(5)
    with pytest.raises(MisuseError, match="a target is a string or a table, found 6"):
        T.target("cuda", 6)


def test_a_buffer_knows_where_it_was_declared() -> None:
    func = from_source(
        "@T.prim_func\ndef f(A: T.Buffer((4,), 'int8'), b: T.handle):\n"
        "    B = T.match_buffer(b, (4,), 'int8')\n    A[0] = B[0]\n"
    )
    spans = [func.buffer_map[p].span for p in func.params]
    assert [(s.line, s.column) for s in spans] == [(2, 7), (3, 9)]


#: Operands with which each intrinsic can be called.
WRITTEN_FIRST = {
    *("call_llvm_intrin", "call_llvm_pure_intrin", "get_active_lane_mask", "mma_fill", "mma_store"),
    *("ptx_cp_async", "ptx_cp_async_bulk", "ptx_ldmatrix", "ptx_mma", "ptx_mma_sp"),
    *("type_annotation", "vectorhigh", "vectorlow", "vectorcombine"),
}


def operands(name: str) -> str:
    """As many operands as an intrinsic takes."""
    dtype = {"dtype": "int32"} if name in WRITTEN_FIRST else {}
    for count in range(20):
        given = ["f", *([0] * count)][:count] if "packed" in name else [0] * count
        try:
            INTRINSICS[name](*given, **dtype)
        except MisuseError:
            continue
        return ", ".join(map(repr, given))
    raise AssertionError(name)


#: What has a meaning on NumPy, or none when it runs.
PLAIN = {
    *("tvm_thread_invariant", "type_annotation", "ignore_loop_partition", "isnullptr", "vscale"),
    *("tvm_call_packed", "tvm_call_cpacked", "call_cpacked", "tvm_storage_sync"),
    *("q_multiply_shift", "q_multiply_shift_per_axis"),
}


@pytest.mark.parametrize("name", sorted(set(INTRINSICS) - {"tvm_struct_get"}))
def test_intrinsics_of_hardware_are_read_and_not_run(name: str) -> None:
    args = operands(name)
    dtype = "dtype='int32'" if name in WRITTEN_FIRST else "dtype='handle'"
    func = read(f"""
        @T.prim_func
        def main(A: T.Buffer((4,), "float32")):
            T.evaluate(T.{name}({args}{", " if args else ""}{dtype}))
            A[0] = T.float32(1)
    """)
    assert isinstance(func, PrimFunc)
    shown = name.removeprefix("tvm_call_").removeprefix("call_")
    assert shown in func.script()
    if name not in PLAIN:
        with pytest.raises(CompileError, match=shown):
            compile_kernel(func, "main")


def test_the_datatype_of_an_intrinsic() -> None:
    x = tir.Var("x", "float16x8")
    assert T.vectorlow("float16x4", x) is T.vectorlow(x, dtype="float16x4")
    assert T.tvm_warp_shuffle(0, x, 0, 0, 0).dtype == "float16x8"
    assert T.tvm_warp_activemask().dtype == "uint32"
    assert T.tvm_storage_sync("shared", dtype="float32").dtype == "int32"
    assert T.tvm_struct_get(tir.Var("p", "handle"), 0, 1, "int64").dtype == "int64"
    assert T.call_cpacked("f", 1).op.name == "tir.tvm_call_cpacked"
    with pytest.raises(MisuseError, match="ptx_wait_group takes 1 operands, found 0"):
        T.ptx_wait_group()
    with pytest.raises(MisuseError, match="simdgroup_load takes 4 to 7 operands, found 1"):
        T.simdgroup_load(0)
    with pytest.raises(MisuseError, match="vectorlow takes a datatype first"):
        T.vectorlow()
    with pytest.raises(MisuseError, match="unknown dtype"):
        T.vectorlow("flaot", x)


def test_maps_of_indices_are_written_as_functions() -> None:
    assert T.index_map(lambda i, j: (j, i)).is_equivalent_to(
        T.IndexMap.from_func(lambda a, b: (b, a))
    )
    func = read("""
        @T.prim_func
        def main(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("copy"):
                    v = T.axis.spatial(4, i)
                    T.block_attr({
                        "layout": T.index_map(
                            lambda i, j: (j // 4, i, j % 4),
                            inverse_index_map=lambda a, b, c: (b, a * 4 + c),
                        ),
                        "others": [T.index_map(lambda i: i + 1, index_dtype="int32")],
                    })
                    A[v] = A[v] + T.float32(1)
    """)
    text = func.script()
    assert "lambda i: (i + 1,), index_dtype" in text
    assert "T.int64()" not in text
    with pytest.raises(ParseError, match="an index map is a function, found 3"):
        read("@T.prim_func\ndef f(n: T.int32):\n    x = T.index_map(3)\n    T.evaluate(n)\n")
