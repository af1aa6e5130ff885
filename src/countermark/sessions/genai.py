"""What the spans of OpenTelemetry's GenAI conventions say, under the names of every version of the conventions.

Rules kept here:

1. ``ALIASES`` is the one table of renamed attributes: the current name first, then what earlier versions called it. The first that is there
   counts, and what is stored of a span is what it said.
2. Tokens and cost count from ``chat`` spans alone (an agent's span repeats the sums of those below it), once for each response: a client
   and a gateway that both report a call report one call.
3. A count that is no whole number from 0 to ``TOKENS_MAX`` says nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Final, Literal, TypeAlias, final

#: The attributes that are read, by what they say: the current name and the names before it.
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "operation": ("gen_ai.operation.name", "llm.request.type"),
    "conversation": ("gen_ai.conversation.id", "gen_ai.thread.id", "session.id"),
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"),
    "cost": ("gen_ai.usage.cost", "gen_ai.cost.total_cost"),
    "response": ("gen_ai.response.id",),
    "model": ("gen_ai.response.model", "gen_ai.request.model"),
    "provider": ("gen_ai.provider.name", "gen_ai.system"),
    "tool": ("gen_ai.tool.name",),
    "agent": ("gen_ai.agent.name",),
}

Operation: TypeAlias = Literal["chat", "execute_tool", "invoke_agent", "other"]
#: What older conventions call the three operations that are counted.
OPERATIONS: Final[Mapping[str, Operation]] = {
    "chat": "chat", "completion": "chat", "text_completion": "chat", "generate_content": "chat",
    "execute_tool": "execute_tool", "invoke_agent": "invoke_agent",
}  # fmt: skip

TOKENS_MAX: Final = 10**12
COST_USD_MAX: Final = 10**6
#: Costs are summed as whole picodollars: the sum of doubles depends on their order.
PICO: Final = 10**12


@final
@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that went in and came out, and the cost in 1e-12 US dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_pico: int = 0

    def plus(self, other: "Usage") -> "Usage":
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens, self.cost_pico + other.cost_pico)

    def most(self, other: "Usage") -> "Usage":
        """What two reports of one response say together: a report that says less knew less."""
        return Usage(
            max(self.input_tokens, other.input_tokens),
            max(self.output_tokens, other.output_tokens),
            max(self.cost_pico, other.cost_pico),
        )


NO_USAGE: Final = Usage()


def said(attributes: Mapping[str, object], what: str) -> object:
    """What the attributes say under the first of the names of ``what``; None where none is there."""
    return next((attributes[name] for name in ALIASES[what] if name in attributes), None)


def operation_of(attributes: Mapping[str, object]) -> Operation:
    """Which operation a span is of."""
    name = said(attributes, "operation")
    return OPERATIONS.get(name, "other") if isinstance(name, str) else "other"


def text_of(attributes: Mapping[str, object], what: str) -> str | None:
    """A text that the attributes say; None for none, for an empty one and for what is no text."""
    found = said(attributes, what)
    return found if isinstance(found, str) and found else None


def usage_of(input_tokens: object, output_tokens: object, cost_usd: object) -> Usage:
    """A usage as it was said."""
    return Usage(_tokens(input_tokens), _tokens(output_tokens), _pico(cost_usd))


def span_usage(attributes: Mapping[str, object]) -> Usage:
    """The usage that a span's attributes say."""
    return usage_of(said(attributes, "input_tokens"), said(attributes, "output_tokens"), said(attributes, "cost"))


def _tokens(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TOKENS_MAX else 0


def _pico(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not 0 <= value <= COST_USD_MAX:
        return 0
    return int((Decimal(repr(value)) * PICO).to_integral_value())
