"""A model under audit: what is measured, chunk by chunk, and what comes out."""
