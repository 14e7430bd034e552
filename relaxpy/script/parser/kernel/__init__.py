"""The reader of `T.prim_func`: from statements to loop nests."""
