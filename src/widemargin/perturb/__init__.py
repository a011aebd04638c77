"""Where to move a point?"""
