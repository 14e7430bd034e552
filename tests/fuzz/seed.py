"""The seed of random programs, how many of them the tests draw, and the CPU they are compiled for.

`RELAXPY_FUZZ_SEED` draws others, `RELAXPY_FUZZ_COUNT` more. `make test` always draws the same few;
`make test-all` draws more and `make fuzz` very many, new ones each day. `RELAXPY_FUZZ_LEVEL` limits
native code to the features of a level of CPUs, such as `x86-64-v3`, in each process that imports
this module.
"""

import os
from datetime import date

SEED = os.environ.get("RELAXPY_FUZZ_SEED") or date.today().isoformat()
COUNT = int(os.environ.get("RELAXPY_FUZZ_COUNT") or 15)
LEVEL = os.environ.get("RELAXPY_FUZZ_LEVEL")

if LEVEL:
    from relaxpy.exec.machine.process import own_platform
    from relaxpy.exec.native.machine_code import machine

    _own = own_platform()
    assert _own is not None, "native code does not run here"
    _limited = machine.machine_of(_own, LEVEL)
    _words = _limited.triple, _limited.cpu, _limited.features
    machine._stored_processor = lambda: _words
