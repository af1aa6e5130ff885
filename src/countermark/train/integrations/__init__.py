"""How each library's trainer is followed: what is its own, and nothing that another one has as well."""
