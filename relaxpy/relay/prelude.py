"""The Prelude, under the path of TVM."""

from relaxpy.ir.relay.module import Prelude as Prelude
