"""The legalisations of operators, where users of TVM look for them."""

from relaxpy.relax.transform.legalize_ops import common as common
