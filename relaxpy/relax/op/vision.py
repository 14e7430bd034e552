"""Operators on boxes."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.vision")
if TYPE_CHECKING:
    from relaxpy.ir.ops.vision import all_class_non_max_suppression as all_class_non_max_suppression, get_valid_counts as get_valid_counts, multibox_transform_loc as multibox_transform_loc, non_max_suppression as non_max_suppression, roi_align as roi_align, roi_pool as roi_pool
