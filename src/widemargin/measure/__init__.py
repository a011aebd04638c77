"""Which numbers does a trained network have?  Each measure returns them as values."""
