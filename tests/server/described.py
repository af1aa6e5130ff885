"""What the tester of descriptions has to know beside the description: texts that are filters, and bodies that are no JSON."""

import schemathesis
from hypothesis import strategies as st

schemathesis.openapi.format(
    "countermark-filter",
    st.sampled_from(["weights.edits > 0", "tag = 'a' OR events >= 2", "id LIKE 's-%'", "NOT closed = true"]),
)


@schemathesis.deserializer("application/x-protobuf")
def protobuf(context: object, response: object) -> object:
    """What OTLP answers in its own encoding; what is in it, the tests of OTLP say."""
    return {}
