"""Training: losses, optimisers, and the trainer that runs them."""

from relaxpy.relax.training import utils as utils
