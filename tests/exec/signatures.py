"""Passes that change the signature of `main`, and how what they return is called.

A row returns the results of `main` of a module, computed by the module after the pass.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

import relaxpy
from relaxpy import IRModule, relax, te, topi
from relaxpy.exec.api.compile import compile
from relaxpy.ir import VDevice
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars
from relaxpy.relax import transform
from relaxpy.relax.training import AppendLoss
from tests.exec.passes import in_dataflow
from tests.tvm.test_lazy_params import getter, setter, stored

Values = Sequence[Any]
Row = Callable[[IRModule, Values], Values]
#: The parameters of `main` that are not weights, in rows with weights.
INPUTS = 1


def main_of(mod: IRModule) -> relax.Function:
    main = mod["main"]
    assert isinstance(main, relax.Function)
    return main


def called(mod: IRModule, *args: Any) -> Values:
    result: Values = compile(mod, target="reference")["main"](*args)
    return result


def with_inputs(mod: IRModule) -> IRModule:
    """The module whose parameters after the first ones are weights."""
    mod = mod.clone()
    mod["main"] = main_of(mod).with_attr("num_input", INPUTS)
    return in_dataflow(mod)


def as_transformation(mod: IRModule) -> IRModule:
    """The module whose `main` is a function that transforms weights."""
    main = main_of(mod).with_attr("global_symbol", "transform_params")
    return IRModule({"transform_params": main})


def every_other_bound(mod: IRModule, args: Values) -> Values:
    bound = {main_of(mod).params[k].name_hint: arg for k, arg in enumerate(args) if k % 2}
    return called(transform.BindParams("main", bound)(mod), *args[::2])


def all_bound(mod: IRModule, args: Values) -> Values:
    params = main_of(mod).params
    bound = transform.BindParams("main", dict(zip(params, args, strict=True)))(mod)
    return called(transform.FoldConstant()(bound))


def symbolic(mod: IRModule) -> IRModule:
    """The module whose parameters have variable dimensions, all of them different."""
    numbers = count()

    def shape(var: relax.Var) -> relax.StructInfo:
        info = var.struct_info
        assert isinstance(info, relax.TensorStructInfo)
        dims = [relaxpy.tir.Var(f"n{next(numbers)}", "int64") for _ in range(info.ndim)]
        return relax.TensorStructInfo(dims, info.dtype)

    return transform.UpdateParamStructInfo(shape)(mod)


def without_shapes(mod: IRModule, args: Values) -> Values:
    def of_a_rank(var: relax.Var) -> relax.StructInfo:
        info = var.struct_info
        assert isinstance(info, relax.TensorStructInfo)
        return relax.TensorStructInfo(ndim=info.ndim, dtype=info.dtype)

    return called(transform.UpdateParamStructInfo(of_a_rank)(mod), *args)


def dims_bound(mod: IRModule, args: Values) -> Values:
    unknown = symbolic(mod)
    sizes = [size for arg in args for size in arg.shape]
    dims = [dim for var in main_of(unknown).params for dim in var.struct_info.shape.values]
    bound = dict(zip(dims, sizes, strict=True))
    return called(transform.BindSymbolicVars(bound, "main")(unknown), *args)


def fetched(mod: IRModule, args: Values) -> Values:
    after = transform.LazyGetInput()(with_inputs(mod))
    get = getter(lambda index, name: args[INPUTS + int(index)], "reference")
    return called(after, *args[:INPUTS], get)


def handed_over(mod: IRModule, args: Values) -> Values:
    results: dict[int, Any] = {}

    def store(index: Any, value: Any) -> None:
        assert results.setdefault(int(index), value) is value

    assert called(transform.LazySetOutput()(mod), *args, setter(store, "reference")) == ()
    return [results[index] for index in sorted(results)]


def one_by_one(mod: IRModule, args: Values) -> Values:
    after = transform.LazyTransformParams()(as_transformation(mod))
    return stored(after, "transform_params", args, target="reference")


def lifted(mod: IRModule, args: Values) -> Values:
    after = compile(transform.LiftTransformParams()(with_inputs(mod)), target="reference")
    weights = after["main_transform_params"](tuple(args[INPUTS:]))
    result: Values = after["main"](*args[:INPUTS], *weights)
    return result


def lifted_together(mod: IRModule, args: Values) -> Values:
    mod = with_inputs(mod)
    mod["again"] = copy_with_new_vars(main_of(mod)).with_attr("global_symbol", "again")
    after = transform.LiftTransformParams(shared_transform=True)(mod)
    ex = compile(after, target="reference")
    weights = ex["transform_params"](tuple(args[INPUTS:]))
    first, second = (ex[name](*args[:INPUTS], *weights) for name in ("main", "again"))
    assert [value.tobytes() for value in first] == [value.tobytes() for value in second]
    result: Values = first
    return result


def with_loss(mod: IRModule, args: Values) -> Values:
    """The results, of which the first one comes from `main` if the loss of it is right."""
    mod = in_dataflow(mod)
    builder = relax.BlockBuilder()
    result = relax.Var("result", main_of(mod).struct_info.ret.fields[0])
    with builder.function("loss", [result]):
        with builder.dataflow():
            wide = builder.emit(relax.op.astype(result, "float32"))
            loss = builder.emit_output(relax.op.sum(wide))
        builder.emit_func_output(loss)
    after = AppendLoss("main", builder.get()["loss"])(mod)
    found, *others = compile(after, target="reference")["main_loss"](*args)
    first = called(mod, *args)[0]
    np.testing.assert_array_equal(found, compile(builder.get(), target="reference")["loss"](first))
    return [first, *others]


def moved(mod: IRModule, args: Values) -> Values:
    """The results on another device."""
    old, new = VDevice("llvm", 0), VDevice("llvm", 1)
    mod = mod.clone()
    mod.update_global_info("vdevice", [old])

    def there(var: relax.Var) -> relax.StructInfo:
        info = var.struct_info
        return relax.TensorStructInfo(info.shape, info.dtype, old)

    after = transform.UpdateVDevice(new, 0)(transform.UpdateParamStructInfo(there)(mod))
    assert all(var.struct_info.vdevice == new for var in main_of(after).params)
    return called(after, *args)


def transposed_additions(mod: IRModule, args: Values) -> Values:
    """The results where additions of matrices are computed by kernels of transposed ones."""
    legal = transform.LegalizeOps()(in_dataflow(mod)).clone()
    implementations = {}
    for var, func in list(legal.functions.items()):
        shapes = (
            [tuple(map(int, b.shape)) for b in func.buffer_map.values()]
            if isinstance(func, relaxpy.tir.PrimFunc) and var.name_hint.startswith("add")
            else []
        )
        if len(shapes) == 3 and len({*shapes}) == 1 and len(shapes[0]) == 2:
            dtype = next(iter(func.buffer_map.values())).dtype
            name = f"test.{var.name_hint}"
            legal[var] = func.with_attr("operator_name", name)
            a, b = (te.placeholder(shapes[0][::-1], dtype, name) for name in "ab")
            implementations[name] = te.create_prim_func([a, b, topi.add(a, b)])
    swapped = [lambda i, j: (j, i)] * 3
    step = transform.AlterOpImpl(implementations, dict.fromkeys(implementations, swapped), {}, {})
    return called(step(legal), *args)


SIGNATURES: dict[str, Row] = {
    "AlterOpImpl": transposed_additions,
    "AppendLoss": with_loss,
    "BindParams": every_other_bound,
    "BindParams(all)": all_bound,
    "BindSymbolicVars": dims_bound,
    "LazyGetInput": fetched,
    "LazySetOutput": handed_over,
    "LazyTransformParams": one_by_one,
    "LiftTransformParams": lifted,
    "LiftTransformParams(shared)": lifted_together,
    "UpdateParamStructInfo": without_shapes,
    "UpdateVDevice": moved,
}
