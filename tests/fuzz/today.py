"""The seed of the day, and how many programs the tests draw with it.

`RELAXPY_FUZZ_SEED` runs the programs of another day again, `RELAXPY_FUZZ_COUNT` more of them.
"""

import os
from datetime import date

SEED = os.environ.get("RELAXPY_FUZZ_SEED") or date.today().isoformat()
COUNT = int(os.environ.get("RELAXPY_FUZZ_COUNT") or 100)
