"""Countermark: from a training recipe to a verdict.

A recipe names one computation, or is refused with everything that it leaves open. A run is claimed before a trainer exists, observed
instead of believed, and concluded from evidence whose read order licenses the conclusion.
"""
