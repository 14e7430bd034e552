"""Helpers of tests."""

from relaxpy.ir.relay.testing import run_infer_type as run_infer_type, run_opt_pass as run_opt_pass
