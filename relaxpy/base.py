"""The base class of errors, under TVM's module name."""

from relaxpy.error import TVMError as TVMError
