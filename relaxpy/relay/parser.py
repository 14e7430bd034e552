"""Reading of programs, under the path of TVM."""

from relaxpy.script.relay.parser import fromtext, parse, parse_expr

__all__ = ["fromtext", "parse", "parse_expr"]
