"""Names that only unchanged programs of TVM need: nothing in relaxpy uses them."""
