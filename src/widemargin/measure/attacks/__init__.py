"""Where near a point is a classifier wrong?  Attacks within a ball, and attacks that look for the shortest way."""
