"""How sure is a network?  A network cut in two, answering with M members."""
