"""Datasets: readers, splits, augmentation, toy sets."""
