"""How operators are given a legalisation."""

from relaxpy.ir.relax.transform.legalize import register_legalize as register_legalize
