"""Random inputs, comparisons of results, and assertions of tests about programs and passes."""
