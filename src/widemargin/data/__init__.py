"""Where do points come from?"""
