"""Data types and matches, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.adt")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.expr import Clause as Clause, Constructor as Constructor, Match as Match, Pattern as Pattern, PatternConstructor as PatternConstructor, PatternTuple as PatternTuple, PatternVar as PatternVar, PatternWildcard as PatternWildcard
    from relaxpy.plugins.relay.ty import TypeData as TypeData
