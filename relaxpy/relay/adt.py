"""Data types and matches, under the path of TVM."""

from relaxpy.ir.relay.expr import (
    Clause as Clause,
    Constructor as Constructor,
    Match as Match,
    Pattern as Pattern,
    PatternConstructor as PatternConstructor,
    PatternTuple as PatternTuple,
    PatternVar as PatternVar,
    PatternWildcard as PatternWildcard,
)
from relaxpy.ir.relay.ty import TypeData as TypeData
