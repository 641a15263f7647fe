"""Analysis of sentence vectors: measures, figures and reports (sections 5 and 7, appendices F and G)."""
