"""The training loop, plans, checkpoints, weight averages, distributed training."""
