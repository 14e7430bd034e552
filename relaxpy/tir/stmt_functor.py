"""Visiting and rewriting of statements and expressions by plain functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.stmt_functor")
if TYPE_CHECKING:
    from relaxpy.tvm.tir.facts import renew_defs as renew_defs
    from relaxpy.tvm.tir.functor import ir_transform as ir_transform, post_order_visit as post_order_visit, pre_order_visit as pre_order_visit, substitute as substitute
