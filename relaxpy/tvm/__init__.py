"""Names that only unchanged programs of TVM need: nothing in relaxpy uses them."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(hooks={"tvm_pipelines": "relaxpy.tvm.pipelines:pipelines"})
