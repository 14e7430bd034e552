"""The tuning of schedules, which is absent: the import says what to use instead."""

from relaxpy.absent import import_error

raise import_error(__name__)
