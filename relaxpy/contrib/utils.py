"""Temporary directories: `tvm.contrib.utils`."""

from relaxpy.exec.runtime.temp_directory import TempDirectory as TempDirectory, tempdir as tempdir
