"""The classes of attributes of calls."""

from relaxpy.ir.relax.op.op_attrs import __getattr__ as __getattr__
