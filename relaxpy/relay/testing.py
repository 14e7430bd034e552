"""Networks as Relay modules, and helpers of tests."""

from relaxpy.exec.relay.naturals import (
    add_nat_definitions as add_nat_definitions,
    count as count,
    make_nat_expr as make_nat_expr,
    make_nat_value as make_nat_value,
)
from relaxpy.ir.relay.image_models import (
    dcgan as dcgan,
    densenet as densenet,
    inception_v3 as inception_v3,
    squeezenet as squeezenet,
    synthetic as synthetic,
    vgg as vgg,
)
from relaxpy.ir.relay.models import (
    create_workload as create_workload,
    dqn as dqn,
    lstm as lstm,
    mlp as mlp,
    mobilenet as mobilenet,
    resnet as resnet,
    run_infer_type as run_infer_type,
    run_opt_pass as run_opt_pass,
)
from relaxpy.ir.relay.op.registry import TempOpAttr as TempOpAttr
