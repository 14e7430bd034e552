"""Callers may pass arguments by the names that TVM gives to parameters."""

from importlib import import_module
from inspect import signature

import pytest

PARAMETERS = """
ir: IRModule.get_attr(attr_key)
ir: IRModule.update_global_info(name, global_info)
ir: IRModule.with_attr(attr_key, attr_value)
ir: IRModule.with_attrs(attr_map)
ir: IRModule.without_attr(attr_key)
ir: BaseFunc.with_attr(attr_key_or_dict, attr_value)
ir: BaseFunc.with_attrs(attr_map)
ir: BaseFunc.without_attr(attr_key)
ir: Op.get(op_name)
ir: Op.get_attr(attr_name)
ir: Op.has_attr(attr_name)
ir: Op.reset_attr(attr_name)
ir: Op.set_attr(attr_name, value, plevel)
ir: Range.from_min_extent(min_value, extent)
ir: load_json(json_str)
transform: PassInfo(opt_level, name, required, traceable)
ir.instrument: pass_instrument(pi_cls)
arith: Analyzer.can_prove_equal(lhs, rhs)
arith: Analyzer.constraint_scope(constraint)
te: create_prim_func(ops, index_dtype_override)
tir: PrimFunc.with_body(new_body)
tir: IndexMap.is_equivalent_to(other_map, analyzer)
tir: IndexMap.map_ndarray(arr_src)
tir: add(lhs, rhs)
tir: subtract(lhs, rhs)
tir: multiply(lhs, rhs)
tir: ceildiv(lhs, rhs)
tir: ret(val)
tir: address_of(obj)
tir: tvm_struct_get(arr, index, field, dtype)
tir.stmt_functor: post_order_visit(stmt, fvisit)
tir.stmt_functor: pre_order_visit(stmt, fvisit)
topi: searchsorted(sorted_sequence, values, right, out_dtype)
topi.nn: conv1d_ncw(data, kernel, strides, padding, dilation, out_dtype)
topi.nn: group_conv2d_nchw(Input, Filter, stride, padding, dilation, groups, out_dtype)
topi.nn: conv3d_ncdhw(Input, Filter, stride, padding, dilation, groups, out_dtype)
relax.training.loss: CrossEntropyLoss.__call__(predictions, targets, weights)
script.ir: lookup_vdevice(target_kind, device_index)
script.ir: module_global_infos(global_infos)
script.ir_builder.ir: lookup_vdevice(target_kind, device_index)
script.ir_builder.ir: module_global_infos(global_infos)
"""


@pytest.mark.parametrize("row", [row for row in PARAMETERS.splitlines() if row])
def test_parameters_have_the_names_of_tvm(row: str) -> None:
    module, _, call = row.partition(": ")
    path, _, names = call.removesuffix(")").partition("(")
    found: object = import_module(f"relaxpy.{module}")
    for name in path.split("."):
        found = getattr(found, name)
    assert callable(found)
    first = [name for name in signature(found).parameters if name not in ("self", "span")]
    assert first[: names.count(",") + 1] == names.split(", ")
