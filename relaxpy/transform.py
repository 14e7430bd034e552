"""Passes, what composes them, and what watches them."""

from relaxpy.ir.instruments import (
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    WellFormedInstrument,
)
from relaxpy.ir.transform import (
    Pass,
    PassContext,
    PassInfo,
    PassInstrument,
    Sequential,
    get_pipeline,
    list_pipelines,
    module_pass,
    pass_instrument,
    register_pipeline,
)

__all__ = [
    "Pass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "Sequential",
    "WellFormedInstrument",
    "get_pipeline",
    "list_pipelines",
    "module_pass",
    "pass_instrument",
    "register_pipeline",
]
