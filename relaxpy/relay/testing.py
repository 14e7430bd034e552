"""Networks as Relay modules, and helpers of tests."""

from relaxpy.exec.relay.naturals import (
    add_nat_definitions as add_nat_definitions,
    count as count,
    make_nat_expr as make_nat_expr,
    make_nat_value as make_nat_value,
)
from relaxpy.ir.relay.op.registry import TempOpAttr as TempOpAttr
from relaxpy.ir.relay.testing import (
    run_infer_type as run_infer_type,
    run_opt_pass as run_opt_pass,
)
