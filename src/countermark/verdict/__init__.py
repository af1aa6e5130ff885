"""Reconciliation: evidence and control in, one verdict out. Pure and total."""

from countermark.verdict.kinds import Conclusion, Verdict
from countermark.verdict.reconcile import ConvergenceInput, HalvesDisagree, join, reconcile
from countermark.verdict.sweep import Sweep, SweepDefect, conclude

__all__ = ["Conclusion", "ConvergenceInput", "HalvesDisagree", "Sweep", "SweepDefect", "Verdict", "conclude", "join", "reconcile"]
