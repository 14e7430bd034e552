"""Buffers."""

from relaxpy.ir.tir.buffer import Buffer as Buffer, decl_buffer as decl_buffer
