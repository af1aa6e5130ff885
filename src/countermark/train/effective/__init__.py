"""The effective manifest: what of each coordinate the live objects of a trainer show."""
