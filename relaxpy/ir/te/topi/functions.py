"""All functions of topi, as users call them."""

from relaxpy.ir.te.topi import contraction, elementwise, image, indexing, nn, reduction, transform
from relaxpy.ir.te.topi.arguments import checked
from relaxpy.ir.te.topi.contraction import *
from relaxpy.ir.te.topi.elementwise import *
from relaxpy.ir.te.topi.indexing import *
from relaxpy.ir.te.topi.reduction import *
from relaxpy.ir.te.topi.transform import *

__all__ = list(contraction.__all__)
__all__ += elementwise.__all__
__all__ += indexing.__all__
__all__ += reduction.__all__
__all__ += transform.__all__

# Users call functions that check their arguments; these functions call each other unchecked.
for _space, _names in ((globals(), __all__), (vars(image), image.__all__), (vars(nn), nn.__all__)):
    _space |= {_name: checked(_space[_name]) for _name in _names}
