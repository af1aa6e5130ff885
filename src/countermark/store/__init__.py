"""The ledger: values to rows and back. What is recorded is never changed or taken out again.

Importing this package loads no database driver; ``countermark.store.sqlite`` does.
"""

from countermark.store.failures import StoreError, StoreFailure
from countermark.store.interface import Finding, Store

__all__ = ["Finding", "Store", "StoreError", "StoreFailure"]
