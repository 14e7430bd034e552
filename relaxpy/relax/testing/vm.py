"""Packed functions that tests of programs call, `test.vm.add` and others, and a check."""

from relaxpy.exec.runtime.packed_for_tests import check_saved_func as check_saved_func
