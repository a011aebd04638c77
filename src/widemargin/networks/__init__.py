"""Plain torch modules that know nothing of perturbations: what a layer says is what it computes."""
