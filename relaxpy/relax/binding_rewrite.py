"""Rewriting of one dataflow block of a function."""

from relaxpy.ir.relax.rewrite.binding_rewrite import DataflowBlockRewrite as DataflowBlockRewrite
