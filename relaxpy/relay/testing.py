"""Networks as Relay modules, and helpers of tests."""

from relaxpy.exec.relay.naturals import (
    add_nat_definitions,
    count,
    make_nat_expr,
    make_nat_value,
)
from relaxpy.ir.relay.image_models import (
    dcgan,
    densenet,
    inception_v3,
    squeezenet,
    synthetic,
    vgg,
)
from relaxpy.ir.relay.models import (
    create_workload,
    dqn,
    lstm,
    mlp,
    mobilenet,
    resnet,
    run_infer_type,
    run_opt_pass,
)
from relaxpy.ir.relay.op.registry import TempOpAttr

__all__ = [
    "TempOpAttr",
    "add_nat_definitions",
    "count",
    "create_workload",
    "dcgan",
    "densenet",
    "dqn",
    "inception_v3",
    "lstm",
    "make_nat_expr",
    "make_nat_value",
    "mlp",
    "mobilenet",
    "resnet",
    "run_infer_type",
    "run_opt_pass",
    "squeezenet",
    "synthetic",
    "vgg",
]
