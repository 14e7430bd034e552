"""Well-formed programs over shape variables, made at random, keep what derivation promises."""

import warnings
from dataclasses import replace

import pytest
from hypothesis import given, settings

from relaxpy.errors import RelaxpyWarning, StructInfoError
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function
from relaxpy.ir.relax.rewrite.map_bindings import without_unused
from tests.fuzz.sized_programs import programs


def normalized(func: rx.Function) -> rx.Function | StructInfoError:
    """The function in normal form, or why it has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelaxpyWarning)
        try:
            return normalize_function(func)
        except StructInfoError as error:
            return error


@pytest.mark.rule("NF-2", "NF-22", "NF-23", "WF-23", "SI-1", "DER-13", "DER-42", "ERA-11")
@settings(max_examples=200)
@given(programs())
def test_a_program_is_normalised_and_derived_once_and_for_all(func: rx.Function) -> None:
    assert check_well_formed(func, check_struct_info=False) == []
    found = normalized(func)
    if isinstance(found, StructInfoError):  # an argument does not fit, which is a fault
        assert found.diagnostic.rule == "DER-41"
        return
    assert check_well_formed(found, normal_form=True) == []
    assert normalized(found) is found
    again = normalized(replace(found, struct_info=None))
    assert isinstance(again, rx.Function)
    assert again.struct_info == found.struct_info


@given(programs())
def test_a_builder_gives_the_same_as_normalisation(func: rx.Function) -> None:
    found = normalized(func)
    if isinstance(found, StructInfoError):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelaxpyWarning)
        built = BlockBuilder().normalize_function(func)
    assert structural_equal(built, found)


@pytest.mark.rule("OPT-9", "SC-15")
@given(programs())
def test_no_shape_variable_is_left_without_its_cast(func: rx.Function) -> None:
    found = normalized(func)
    if isinstance(found, StructInfoError):
        return
    after = normalized(without_unused(found))
    assert isinstance(after, rx.Function)
    assert check_well_formed(after, normal_form=True) == []
