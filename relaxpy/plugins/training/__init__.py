"""Training: losses and optimisers as Relax functions, and the passes that build a trainer."""
