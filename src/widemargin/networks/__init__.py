"""Which function is trained?  Plain torch modules that know nothing of perturbations."""
