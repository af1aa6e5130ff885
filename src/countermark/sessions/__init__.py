"""Sessions: the recorded events of an agent, a script or a notebook, weight edits among them, and what follows from them."""
