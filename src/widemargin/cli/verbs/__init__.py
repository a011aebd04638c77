"""What can be said on the command line: fields are its words, docstrings its help.  Nothing here is slow to import."""
