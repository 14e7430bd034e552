"""The seed of random programs, and how many of them the tests draw.

`RELAXPY_FUZZ_SEED` draws others, `RELAXPY_FUZZ_COUNT` more. `make fuzz` and `make test-all` draw
new ones each day, `make test` always the same.
"""

import os
from datetime import date

SEED = os.environ.get("RELAXPY_FUZZ_SEED") or date.today().isoformat()
COUNT = int(os.environ.get("RELAXPY_FUZZ_COUNT") or 100)
