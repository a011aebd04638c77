"""Networks with logits of M members: single, ensemble, MC dropout, Laplace, deep kernel; measures of uncertainty."""
