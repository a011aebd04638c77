"""Who carries a run out, and where does it live?  Training, validation and files meet here and nowhere else."""
