"""Visiting and rewriting of statements and expressions by plain functions."""

from relaxpy.ir.tir.prim_func.renew_defs import renew_defs
from relaxpy.ir.tir.stmt_functor import ir_transform, post_order_visit, pre_order_visit, substitute

__all__ = ["ir_transform", "post_order_visit", "pre_order_visit", "renew_defs", "substitute"]
