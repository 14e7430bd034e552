"""The seed of random programs, and how many of them the tests draw.

`RELAXPY_FUZZ_SEED` draws others, `RELAXPY_FUZZ_COUNT` more. `make test` always draws the same few;
`make test-all` draws more and `make fuzz` very many, new ones each day.
"""

import os
from datetime import date

SEED = os.environ.get("RELAXPY_FUZZ_SEED") or date.today().isoformat()
COUNT = int(os.environ.get("RELAXPY_FUZZ_COUNT") or 15)
