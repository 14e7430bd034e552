"""Buffers, statements and PrimFuncs."""

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir import IRModule, assert_structural_equal
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relaxpy.ir.tir import expr as tir, intrin, ops, stmt
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.reduce import comm_reducer

I = tir.Var("i")  # noqa: E741
J = tir.Var("j")
N = tir.Var("n", "int64")
A = decl_buffer((4, N), "float32", "A")
NOTHING = stmt.Evaluate(0)


# --- ranges


def test_a_range_is_a_begin_and_an_extent():
    assert Range(4).extent is ops.const(4)
    assert Range(4).min is ops.const(0)
    assert (Range(2, 6).min, Range(2, 6).extent) == (ops.const(2), ops.const(4))
    assert Range(I, I + 8).extent is ops.const(8)
    assert Range(N, N).extent is ops.const(0, "int64")
    assert Range.from_min_extent(I, 3).stop is I + 3
    assert Range.point(I).extent is ops.const(1)


# --- types


def test_types_of_pointers():
    assert PointerType("float32") == PointerType(PrimType("float32"), "")
    assert PrimType("int8").script() == "T.int8"
    assert PointerType("int32").script() == 'T.handle("int32", "global")'
    assert PointerType("int32", "shared").script(tir_prefix="t") == 't.handle("int32", "shared")'
    assert PrimType("int8").script(verbose_expr=True, tir_prefix="t") == "t.int8"
    with pytest.raises(MisuseError, match="tir_prefix"):
        PrimType("int8").script(tir_prefx="t")
    assert PointerType("int8", "shared").storage_scope == "shared"
    with pytest.raises(MisuseError, match="expected a dtype"):
        PointerType(PointerType("int8"))
    with pytest.raises(MisuseError, match="expected a storage scope as a string, found 3"):
        PointerType("int8", 3)


# --- buffers


def test_what_a_buffer_is_when_only_its_shape_is_given():
    buffer = decl_buffer(16)
    assert (buffer.dtype, buffer.name, buffer.ndim) == ("float32", "buffer", 1)
    assert buffer.shape == (ops.const(16),)
    assert buffer.strides == ()
    assert buffer.elem_offset is ops.const(0)
    assert (buffer.data_alignment, buffer.offset_factor, buffer.buffer_type) == (64, 1, 1)
    assert buffer.scope() == "global"
    assert buffer.data.type_annotation == PointerType(PrimType("float32"), "")
    assert str(buffer) == "buffer"


def test_what_a_buffer_is_told():
    assert decl_buffer((2,), "bool").data.type_annotation.element_type == PrimType("int8")
    assert decl_buffer((N,), "int8").elem_offset is ops.const(0, "int64")
    assert decl_buffer(()).elem_offset is ops.const(0)
    assert decl_buffer((2,), scope="shared").scope() == "shared"
    free = decl_buffer((2,), name="B", offset_factor=4)
    assert isinstance(free.elem_offset, tir.Var)
    assert free.elem_offset.name == "B_elem_offset"
    assert decl_buffer((2,), data_alignment=-1).data_alignment == 64
    assert decl_buffer((2, 3), axis_separators=[1]).axis_separators == (1,)


def test_the_data_of_a_buffer_is_a_pointer():
    with pytest.raises(MisuseError, match="data of buffer B is a pointer variable"):
        decl_buffer((2,), name="B", data=tir.Var("p", "handle"))
    assert decl_buffer((2,), data=A.data).data is A.data


def test_buffers_are_themselves():
    assert A == A
    assert decl_buffer((4, N), "float32", "A") != A
    assert len({A, A}) == 1
    renamed = A.with_name("B")
    assert (renamed.name, renamed.data.name, renamed.shape) == ("B", "B", A.shape)
    assert decl_buffer((2,), buffer_type="auto_broadcast").with_name("C").buffer_type == 2


def test_subscripts_are_loads_vectors_or_regions():
    assert A[I, J] is BufferLoad(A, [I, J])
    assert A[I, 0:8:2] is BufferLoad(A, [I, tir.Ramp(0, 2, 4)])
    assert A[I, J : J + 4 : 1] is BufferLoad(A, [I, tir.Ramp(J, 1, 4)])
    assert A[I, 0:1:1] is A[I, 0]
    region = A[I, 0:4]
    assert isinstance(region, BufferRegion)
    assert region.region == (Range.point(I), Range(4))
    assert A[:, 2:].region == (Range(4), Range(2, N))
    assert A[..., 0:2].region == A[:, 0:2].region
    assert decl_buffer((4,))[::2] is not None


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((I,), "A has 2 dimensions, found 1 index"),
        ((I, J, 0), "A has 2 dimensions, found 3 indices"),
        ((I, slice(0, N, 1)), "constant length"),
        ((I, 1.5), "an index of A is an integer"),
    ],
)
def test_subscripts_that_fit_no_buffer(index: tuple[object, ...], message: str):
    with pytest.raises(MisuseError, match=message):
        A[index]


def test_elements_have_addresses():
    assert intrin.address_of(A).args[0] is A[0, ops.const(0, "int64")]
    assert intrin.address_of(A[I, J]).args == (A[I, J],)
    with pytest.raises(MisuseError, match="only elements of buffers have addresses, not i"):
        intrin.address_of(I)


def test_a_buffer_is_not_gone_through_and_a_region_is_not_a_value():
    with pytest.raises(MisuseError, match="cannot be iterated over"):
        list(A)
    with pytest.raises(MisuseError, match="is a region, not a value"):
        ops.convert(A[0:2, 0])
    with pytest.raises(MisuseError, match="has 2 ranges"):
        BufferRegion(A, [Range(1)])
    ranges = [Range(1), Range(2)]
    assert BufferRegion(A, ranges).region == tuple(ranges)


def test_loads_by_begin_and_lanes():
    assert A.vload([I, 0]) is A[I, 0]
    assert A.vload([I, 0], "float32x4") is A[I, 0:4:1]
    assert A.vload([I, tir.Ramp(0, 2, 4)], "float32x4") is A[I, 0:8:2]
    mask = tir.Broadcast(ops.const(True), 4)
    assert A.vload([I, 0], "float32x4", mask).predicate is mask
    with pytest.raises(MisuseError, match="A holds float32, not int8x4"):
        A.vload([I, 0], "int8x4")
    with pytest.raises(MisuseError, match="has no lanes"):
        decl_buffer(()).vload([], "float32x4")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Range(1.5), "an end is an integer"),
        (lambda: Range(0, tir.Var("x", "float32")), "an end is an integer"),
        (lambda: Range.from_min_extent(0, 1.5), "an extent is an integer"),
        (lambda: IterVar(4, "v", 0), "a domain is a Range, a pair"),
        (lambda: IterVar((0, 1, 2), "v", 0), "a domain is a Range, a pair"),
        (lambda: IterVar(Range(4), 3, 0), r"defines a tir\.Var, found 3"),
        (lambda: IterVar(Range(4), "v", 99), r"no IterVarKind is 99; there are 0 \(DataPar\)"),
        (lambda: decl_buffer((1.5,)), "a dimension of buffer buffer is an integer"),
        (lambda: decl_buffer((2,), strides=(1.5,)), "a stride of buffer buffer is an integer"),
        (lambda: decl_buffer((2, 3), strides=(1,)), "has 2 dimensions and 1 strides"),
        (lambda: decl_buffer((2,), elem_offset=1.5), "the offset of buffer buffer is an integer"),
        (lambda: decl_buffer((2,), data=3), "is a pointer variable, found 3"),
        (lambda: decl_buffer((2,), name=3), "named by a string, found 3"),
        (lambda: Buffer(I, "int8", (2,)), "data of buffer buffer is a pointer variable, found i"),
        (lambda: decl_buffer((2,), offset_factor="2"), "expected an integer, found '2'"),
        (lambda: decl_buffer((2,), buffer_type="foo"), 'of type "default" or "auto_broadcast"'),
        (lambda: decl_buffer((2, 3), axis_separators=[5]), "increase from 0 to 2"),
        (lambda: decl_buffer((2, 3), axis_separators=[2, 1]), "increase from 0 to 2"),
        (lambda: BufferRegion(A, [1, 2]), "consists of Ranges, found 1"),
        (lambda: BufferLoad(None, (0,)), "a Buffer is accessed, found None"),
        (lambda: BufferLoad(A, 0), "expected a list of expressions, found 0"),
        (lambda: BufferLoad(A, (0, 0), 3), "a predicate of 1 lanes is bool, found 3"),
    ],
)
def test_ranges_and_buffers_of_other_things_are_refused(make, says: str):
    with pytest.raises(MisuseError, match=says):
        make()


# --- statements


def test_a_let_binds_a_value_of_its_datatype():
    assert stmt.LetStmt(I, 1, NOTHING).value is ops.const(1)
    with pytest.raises(MisuseError, match="i of int32 is bound to int64"):
        stmt.LetStmt(I, N, NOTHING)


def test_a_store_has_the_rank_and_the_datatype_of_the_buffer():
    assert stmt.BufferStore(A, 1.0, (I, 0)).value is ops.const(1.0)
    with pytest.raises(MisuseError, match="2 dimensions, found 1"):
        stmt.BufferStore(A, 1.0, (I,))
    with pytest.raises(
        MisuseError, match="dtype mismatch on BufferStore: A holds float32"
    ) as caught:
        stmt.BufferStore(A, 1, (I, 0))
    assert isinstance(caught.value, TypeError)
    vector = tir.Broadcast(ops.const(1.0), 4)
    assert stmt.BufferStore(A, vector, (I, tir.Ramp(0, 1, 4))).value is vector
    with pytest.raises(MisuseError, match="holds float32x4, the value is float32"):
        stmt.BufferStore(A, 1.0, (I, tir.Ramp(0, 1, 4)))


def test_loops_have_bounds_of_their_variables_datatype():
    loop = stmt.For(N, 0, 4, stmt.ForKind.PARALLEL, NOTHING, annotations={"a": [1]})
    assert (loop.min, loop.extent) == (ops.const(0, "int64"), ops.const(4, "int64"))
    assert loop.kind == 1
    assert loop.annotations == {"a": (1,)}
    with pytest.raises(MisuseError, match="loop variable i of int32 has a bound of int64"):
        stmt.For(I, 0, N, 0, NOTHING)


@pytest.mark.parametrize(
    "make",
    [
        lambda c: stmt.While(c, NOTHING),
        lambda c: stmt.IfThenElse(c, NOTHING),
        lambda c: stmt.AssertStmt(c, "m", NOTHING),
        lambda c: stmt.BlockRealize((), c, stmt.Block((), (), (), "b", NOTHING)),
    ],
)
def test_conditions_are_boolean(make):
    assert make(I < 1) is not None
    assert make(True) is not None
    with pytest.raises(MisuseError, match="expected a Boolean"):
        make(I)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: stmt.For(I, 0, 4, 0, None), "expected a statement, found None"),
        (lambda: stmt.For("i", 0, 4, 0, NOTHING), r"defines a tir\.Var, found 'i'"),
        (lambda: stmt.For(I, 0, 4, "parallel", NOTHING), r"no ForKind is 'parallel'.*1 \(PARA"),
        (lambda: stmt.For(tir.Var("x", "float32"), 0, 4, 0, NOTHING), "counts integers"),
        (lambda: stmt.For(I, 0, 4, 0, NOTHING, annotations=[1]), "attributes are a table"),
        (lambda: stmt.For(I, 0, 4, 4, NOTHING, J), "expected a IterVar, found j"),
        (lambda: stmt.Block((), (), (), 3, NOTHING), "named by a string, found 3"),
        (lambda: stmt.LetStmt("x", 1, NOTHING), r"defines a tir\.Var, found 'x'"),
        (lambda: stmt.LetStmt(I, 1, None), "expected a statement"),
        (lambda: stmt.AttrStmt(None, "key", 1, 2), "expected a statement, found 2"),
        (lambda: stmt.AssertStmt(True, "m", 3), "expected a statement"),
        (lambda: stmt.While(True, 3), "expected a statement"),
        (lambda: stmt.IfThenElse(True, NOTHING, 3), "expected a statement, found 3"),
        (lambda: stmt.SeqStmt([1]), "tir.Evaluate converts"),
        (lambda: stmt.SeqStmt(None), "expected a list of statements"),
        (lambda: stmt.BufferStore(3, 1.0, (0,)), "a Buffer is accessed, found 3"),
        (lambda: stmt.BufferStore(A, 1.0, (0, 0), I), "a predicate of 1 lanes is bool"),
        (lambda: stmt.Allocate("p", "int8", (4,), True, NOTHING), r"defines a tir\.Var"),
        (lambda: stmt.Allocate(A.data, "int8", 4, True, NOTHING), "expected a list of expr"),
        (lambda: stmt.DeclBuffer(3, NOTHING), "expected a Buffer, found 3"),
        (lambda: stmt.Block((I,), (), (), "b", NOTHING), "a list of IterVars, found i in it"),
        (lambda: stmt.Block((), (A,), (), "b", NOTHING), "a list of BufferRegions, found A in it"),
        (lambda: stmt.Block(3, (), (), "b", NOTHING), "a list of IterVars, found 3"),
        (lambda: stmt.BlockRealize((), True, NOTHING), "expected a Block"),
        (lambda: PrimFunc(None, NOTHING), "expected a list of parameters"),
        (lambda: PrimFunc([], 3), "the body is a statement, found 3"),
        (lambda: PrimFunc([I], NOTHING, None, {I: 3}), "maps handles to Buffers, found 3"),
    ],
)
def test_statements_of_other_things_are_refused(make, says: str):
    with pytest.raises(MisuseError, match=says):
        make()


def test_a_reducer_combines_two_values():
    with pytest.raises(MisuseError, match=r"combines two values, .* takes \['x'\]"):
        comm_reducer(lambda x: x, lambda dtype: 0)
    with pytest.raises(MisuseError, match="is a function of two values, found 3"):
        comm_reducer(3, lambda dtype: 0)  # type: ignore[arg-type]


def test_sequences_are_laid_flat():
    inner = stmt.SeqStmt([NOTHING, stmt.Evaluate(1)])
    outer = stmt.SeqStmt([inner, stmt.Evaluate(2)])
    assert [int(s.value) for s in outer] == [0, 1, 2]
    assert len(outer) == 3
    assert outer[0] is NOTHING


def test_a_block_is_realised_with_a_value_for_each_variable():
    axis = IterVar(Range(4), "v", 0)
    block = stmt.Block((axis,), (), (), "b", NOTHING)
    assert stmt.BlockRealize((I,), True, block).iter_values == (I,)
    with pytest.raises(MisuseError, match="b has 1 iteration variables, found 2 values"):
        stmt.BlockRealize((I, J), True, block)


def test_iteration_variables_take_their_datatype_from_the_domain():
    axis = IterVar((ops.const(0, "int64"), ops.const(4, "int64")), "v", 2)
    assert axis.var.dtype == "int64"
    assert axis.iter_type == tir.IterVarKind.CommReduce
    assert ops.convert(axis) is axis.var
    assert IterVar(None, "t", 1, "threadIdx.x").var.dtype == "int32"


# --- functions


@pytest.mark.rule("AST-4")
def test_a_primfunc_has_parameters_body_result_buffers_and_attributes():
    func = PrimFunc([A, I], NOTHING, "int32", attrs={"global_symbol": "f"})
    handle, scalar = func.params
    assert (handle.dtype, handle.name, scalar) == ("handle", "A", I)
    assert func.buffer_map == {handle: A}
    assert func.buffer_of(scalar) is None
    assert func.ret_type == "int32"
    assert func.attrs == {"global_symbol": "f"}
    assert func.with_body(stmt.Evaluate(1)).params == func.params
    assert func.with_attr("a", 1).buffer_map == func.buffer_map
    explicit = PrimFunc([handle], NOTHING, None, {handle: A})
    assert explicit.buffer_of(handle) is A


@pytest.mark.rule("AST-4")
@pytest.mark.parametrize("param", [rx.Var("x"), 3, "A"])
def test_other_parameters_are_refused(param: object):
    with pytest.raises(MisuseError, match="a parameter is a Var or a Buffer") as caught:
        PrimFunc([param], NOTHING)
    assert caught.value.diagnostic.rule == "AST-4"


@pytest.mark.rule("AST-4")
@pytest.mark.parametrize("stranger", [tir.Var("a", "handle"), "A"])
def test_buffers_of_others_than_parameters_are_refused(stranger: object):
    handle = tir.Var("A", "handle")
    with pytest.raises(MisuseError, match="buffer_map maps parameters to Buffers") as caught:
        PrimFunc([handle], NOTHING, None, {handle: A, stranger: A})
    assert caught.value.diagnostic.rule == "AST-4"


def signature(*params: tir.Var | Buffer, ret: str | None = None) -> FuncStructInfo:
    return PrimFunc(params, NOTHING, ret).struct_info


@pytest.mark.rule("DER-49")
def test_the_signature_of_a_kernel_is_read_off_its_parameters():
    k = tir.Var("k", "int64")
    sinfo = signature(A, k, tir.Var("x", "float16"), tir.Var("p", "handle"))
    assert sinfo == FuncStructInfo(
        [
            TensorStructInfo((4, N), "float32"),
            PrimStructInfo("int64", k),
            PrimStructInfo("float16", sinfo.params[2].value),
            ObjectStructInfo(),
        ],
        TupleStructInfo(()),
        purity=False,
    )
    assert not sinfo.purity
    assert sinfo.derive_func is None


@pytest.mark.rule("DER-49")
def test_a_kernel_that_returns_gives_a_scalar():
    assert signature(ret="float32").ret == PrimStructInfo("float32")
    assert signature().ret == TupleStructInfo(())


@pytest.mark.rule("DER-49")
def test_a_shape_with_a_variable_that_nothing_binds_is_left_out():
    k = tir.Var("k", "int64")
    compound = decl_buffer((k * 2,), "int8", "C")
    assert signature(compound).params == (TensorStructInfo(None, "int8", ndim=1),)
    bound = signature(compound, k)
    assert bound.params[0] == TensorStructInfo((k * 2,), "int8")
    beside = signature(compound, decl_buffer((k,), "int8", "D"))
    assert beside.params[0] == TensorStructInfo((k * 2,), "int8")


@pytest.mark.rule("DER-49")
def test_dimensions_of_a_signature_are_64_bits_wide():
    n = tir.Var("n", "int32")
    [sinfo] = signature(decl_buffer((n, 4), "int8", "B")).params
    assert [d.dtype for d in sinfo.shape.values] == ["int64", "int64"]


def test_a_kernel_stands_in_a_module():
    module = IRModule({"f": PrimFunc([A], NOTHING)})
    assert isinstance(module["f"], PrimFunc)


def test_the_kinds_of_iteration_stand_at_its_class() -> None:
    axis = IterVar((0, 4), "v", IterVar.CommReduce)
    assert axis.iter_type is tir.IterVarKind.CommReduce
    assert {k.name for k in tir.IterVarKind} == {
        name for name, value in vars(IterVar).items() if isinstance(value, tir.IterVarKind)
    }


def test_a_constant_in_memory_is_the_same_as_an_array_and_as_lists() -> None:
    memory = decl_buffer((2, 2), "int32").data
    body = stmt.Evaluate(0)
    array, lists = (
        stmt.AllocateConst(memory, "int32", (2, 2), data, body)
        for data in (np.int32([[1, 2], [3, 4]]), [[1, 2], [3, 4]])
    )
    assert array.data == lists.data == ((1, 2), (3, 4))
    assert_structural_equal(array, lists)
