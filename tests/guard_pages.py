"""Arrays beside pages that must not be accessed, so that what reads or writes outside crashes."""

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE


def guarded(array: np.ndarray, *, at_end: bool) -> np.ndarray:
    """A contiguous copy of `array` before or after a page that must not be accessed."""
    size = max(1, -(-array.nbytes // PAGE)) * PAGE
    memory = mmap.mmap(-1, size + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None)
    for page in (start, start + PAGE + size):
        assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
    first = PAGE + (size - array.nbytes if at_end else 0)
    result = np.frombuffer(memory, array.dtype, array.size, first).reshape(array.shape)
    result[...] = array
    return result
