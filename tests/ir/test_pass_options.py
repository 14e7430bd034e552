"""The options of passes, which are checked by the types that the classes declare."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from relaxpy import IRModule
from relaxpy.errors import MisuseError
from relaxpy.relax import Var, training, transform
from relaxpy.support.dataclass import dataclass
from relaxpy.tir import transform as kernels
from relaxpy.transform import Pass, PassContext

X = Var("x")


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: transform.AlterOpImpl([1]), "op_impl_map is a dict from strings to PrimFuncs"),
        (lambda: transform.AlterOpImpl({"a": 1}), "from strings to PrimFuncs, found {'a': 1}"),
        (lambda: transform.AlterOpImpl({}, {"a": [1]}), "lists of IndexMaps or tuples or"),
        (lambda: transform.AttachExternModules("a.o"), "extern_modules is a list of values, found"),
        (lambda: transform.BindParams(3, {}), "func_name is a string or a GlobalVar, found 3"),
        (lambda: transform.BindParams("main", [X]), "params is a dict from Vars or strings to"),
        (lambda: transform.BindSymbolicVars([1]), "binding_map is a dict from Vars or strings to"),
        (lambda: transform.BundleModelParams(3), "param_tuple_name is a string, found 3"),
        (lambda: transform.CombineParallelMatmul(3), "check is a function, found 3"),
        (lambda: transform.ConvertLayout(["NHWC"]), "a dict from strings to lists of strings, "),
        (lambda: transform.ConvertLayout({"relax.nn.conv2d": "NHWC"}), "lists of strings, found"),
        (lambda: transform.ConvertToDataflow(True), "min_size is an integer, found True"),
        (lambda: transform.ConvertToDataflow("2"), "min_size is an integer, found '2'"),
        (lambda: transform.ConvertToDataflow(1.5), "min_size is an integer, found 1.5"),
        (lambda: transform.DeadCodeElimination("main"), "entry_functions is a list of strings"),
        (lambda: transform.DeadCodeElimination([3]), r"a list of strings, found \[3\]"),
        (lambda: transform.DecomposeOpsForInference(3), "func_name is a string, found 3"),
        (lambda: transform.EliminateCommonSubexpr(1), "call_only is True or False, found 1"),
        (lambda: transform.FuseOps("2"), "fuse_opt_level is an integer, found '2'"),
        (lambda: transform.FuseOpsByPattern(3), "patterns is a list of"),
        (lambda: transform.Gradient(3), "func_name is a string or a GlobalVar, found 3"),
        (lambda: transform.Gradient("f", "x"), "require_grads is a Var or a list of Vars, found"),
        (lambda: transform.Gradient("f", target_index=True), "target_index is an integer, found"),
        (lambda: transform.IPCAllReduceRewrite(3), "allreduce_strategy is 1 or 2, found 3"),
        (lambda: transform.LazyTransformParams(None), "fget_item is a string, found None"),
        (lambda: transform.LazyTransformParams("f", 3), "fset_item is a string, found 3"),
        (lambda: transform.LazyTransformParams("f", "g", [3]), "get_item_params is a list of Vars"),
        (lambda: transform.LegalizeOps([3]), "a dict from strings to functions, found"),
        (lambda: transform.LegalizeOps({"relax.add": X}), "a dict from strings to functions"),
        (lambda: transform.LegalizeOps(None, True), "skip_ops is a list of strings, found True"),
        (lambda: transform.LiftTransformParams(1), "True or False or a list of strings, found 1"),
        (lambda: transform.LiftTransformParams([3]), r"or a list of strings, found \[3\]"),
        (lambda: transform.QuantizeWeights("q4f32_1", "w"), "params is a list of strings, found"),
        (lambda: transform.RunCodegen(3), "target_options is a dict from strings to dicts, found"),
        (lambda: transform.RunCodegen({"testing": 3}), "a dict from strings to dicts, found"),
        (lambda: transform.SplitCallTIRByPattern(3, len), "patterns is a list of PrimFuncs"),
        (lambda: transform.SplitCallTIRByPattern([3], len), r"a list of PrimFuncs, found \[3\]"),
        (lambda: transform.SplitCallTIRByPattern([], 3), "fcodegen is a function, found 3"),
        (lambda: transform.ToMixedPrecision("float64"), "out_dtype is 'float16' or 'float32', "),
        (lambda: transform.ToMixedPrecision("float32", "w"), "fp16_input_names is a list of str"),
        (lambda: transform.TopologicalSort("depth"), "is 'depth-first' or 'breadth-first', found"),
        (lambda: transform.TopologicalSort(direction="in"), "'from-inputs' or 'from-outputs'"),
        (lambda: transform.UpdateParamStructInfo(3), "sinfo_func is a function, found 3"),
        (lambda: transform.UpdateVDevice("cuda", 0), "new_vdevice is a VDevice, found 'cuda'"),
        (lambda: kernels.BindTarget("cuda"), "target is a Target, found 'cuda'"),
        (lambda: training.SetupTrainer(3, 4, []), "loss is a Loss, found 3"),
        (lambda: training.AppendLoss("f", 3), "loss_function is a Function, found 3"),
    ],
)
def test_an_option_of_another_type_is_refused(create: Callable[[], Any], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        create()


@dataclass(frozen=True)
class Scaled(Pass):
    """A pass with options of other types."""

    factor: float
    names: Sequence[str] = ()
    sizes: "tuple[int, str] | None" = None
    other: "Unknown" = None  # type: ignore[name-defined]  # noqa: F821

    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return mod


@dataclass(frozen=True)
class Checked(Pass):
    factor: float
    names: Sequence[str] = ()
    sizes: tuple[int, str] | None = None

    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return mod


def test_options_of_passes_that_users_write_are_checked() -> None:
    assert Checked(2, ["a"], (1, "b")) == Checked(2, ("a",), (1, "b"))
    assert hash(Checked(np.float64(0.5), ["a"])) == hash(Checked(0.5, ("a",)))
    for options, message in (
        (("2",), "factor is a number, found '2'"),
        ((True,), "factor is a number, found True"),
        ((2, "a"), "names is a list of strings, found 'a'"),
        ((2, (), (1,)), r"sizes is .*found \(1,\)"),
        ((2, (), (1, 2)), r"sizes is .*found \(1, 2\)"),
    ):
        with pytest.raises(MisuseError, match=message):
            Checked(*options)


def test_types_that_cannot_be_evaluated_are_not_checked() -> None:
    assert Scaled("2").factor == "2"  # type: ignore[arg-type]
