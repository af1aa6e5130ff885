"""Reconciliation: evidence and control in, one verdict out. Pure and total."""

from countermark.verdict.kinds import Conclusion, Verdict
from countermark.verdict.reconcile import ConvergenceInput, HalvesDisagree, join, reconcile

__all__ = ["Conclusion", "ConvergenceInput", "HalvesDisagree", "Verdict", "join", "reconcile"]
