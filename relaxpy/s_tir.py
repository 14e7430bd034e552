"""Kernels with schedules, which are absent: the import says what to use instead."""

from relaxpy.absent import import_error

raise import_error(__name__)
