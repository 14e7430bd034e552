"""The error of a wrong use of the command line."""

from relaxpy.errors import MisuseError


class UsageError(MisuseError):
    """An option, a file or a name on the command line is wrong: exit code 2."""
