"""Names that only unchanged programs of TVM need: nothing in relaxpy uses them."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(
    passes=("relaxpy.tvm.tir.options",),
    functions=("relaxpy.tvm.tensor_cache",),
    hooks={
        "tvm_pipelines": "relaxpy.tvm.pipelines:pipelines",
        "python_module": "relaxpy.tvm.python_module:BasePyModule",
    },
)
