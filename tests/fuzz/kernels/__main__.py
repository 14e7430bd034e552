"""Run many random kernels: `make fuzz N=100000 SEED=seed`."""

import os
import sys

from tests.fuzz.kernels.run import main
from tests.fuzz.seed import SEED

if __name__ == "__main__":
    count, seed, jobs, *_ = [*sys.argv[1:], "", "", ""]
    sys.exit(main(int(count or 100_000), seed or SEED, int(jobs or len(os.sched_getaffinity(0)))))
