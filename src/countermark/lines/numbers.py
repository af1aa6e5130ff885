"""Numbers as every surface prints them; the cases are ``contract/fixtures/number_format.json``.

Rules kept here:

1. Three decimals. A value that would print as 0.000 and is not 0 gets two significant digits, in scientific notation below 1e-6.
2. A value beneath 1 never prints as 1.000: the distance to 1 keeps two significant digits.
3. ``-0.0`` prints as 0.000; what is unknown prints as ``-``.
"""

import math
from decimal import Decimal
from typing import Final

_SCIENTIFIC_BELOW: Final = Decimal("1e-6")


def shown_number(value: float | int | None) -> str:
    """One number by the rule above. Total: NaN and the infinities have names."""
    if value is None:
        return "-"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    exact = Decimal(value)
    size = abs(exact)
    if not size:
        return "0.000"
    rounded = f"{size:.3f}"
    sign = "-" if exact < 0 else ""
    if rounded == "0.000":
        return sign + (f"{float(size):.1e}" if size < _SCIENTIFIC_BELOW else f"{size:.{_decimals(size)}f}")
    if rounded == "1.000" and size < 1:
        return sign + f"{size:.{_decimals(1 - Decimal(repr(float(size))))}f}"
    return sign + rounded


def _decimals(size: Decimal) -> int:
    """Decimals that show two significant digits of ``size``, after rounding to them."""
    return 1 - int(f"{size:.1e}".partition("e")[2])


def shown_norm(value: float | None) -> str:
    """A norm with three significant digits; scientific below 0.001 and from a million on, never 0 or infinite unless it is."""
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else shown_number(value)
    exponent = int(f"{abs(value):.2e}".partition("e")[2])
    if -3 <= exponent < 6:
        return f"{float(f'{value:.2e}'):,.{max(2 - exponent, 0)}f}"
    mantissa, _, power = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"


def shown_share(part: int, whole: int) -> str:
    """A part of a whole in percent, so that neither some is shown as none nor most as all."""
    if not whole:
        return "-"
    if part == 0 or part == whole:
        return "0 %" if part == 0 else "100 %"
    percent = 100 * part / whole
    if percent < 0.01:
        return "< 0.01 %"
    if percent > 99.99:
        return "> 99.99 %"
    return f"{percent:.2f} %" if percent < 10 or percent > 99 else f"{percent:.1f} %"
