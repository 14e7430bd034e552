"""Networks as Relay modules, and helpers of tests."""

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

__all__ = [
    "create_workload",
    "dqn",
    "lstm",
    "mlp",
    "mobilenet",
    "resnet",
    "run_infer_type",
    "run_opt_pass",
]
