"""Program text: its tree, its positions, its names, and the errors found in it."""
