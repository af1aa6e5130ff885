"""The documents of the commands on weights."""

from typing import Final, get_args

from countermark.cli.forms import NOTHING, SHA256, TEXT, WHOLE, YES_OR_NO, Schema, answer, listed, maybe, one_of, record, ref
from countermark.recipe.composition import LOAD_DTYPES, MERGE_RULES
from countermark.weights.difference import Domain, Rootless, Status
from countermark.weights.spectrum import RANKS, Gap

_WR1: Final[Schema] = {"type": "string", "pattern": "^wr1:[0-9a-f]{64}$"}
_MC1: Final[Schema] = {"type": "string", "pattern": "^mc1:[0-9a-f]{64}$"}
_FD1: Final[Schema] = {"type": "string", "pattern": "^fd1:[0-9a-f]{64}$"}
_HEX: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
#: A norm is never NaN or infinite: what has none is null.
_NORM: Final[Schema] = {"anyOf": [{"type": "number", "minimum": 0}, NOTHING]}


def _root() -> list[Schema]:
    """Of a single measured path the fields stand at the top as well."""
    measured = {
        "path": TEXT,
        "root": maybe(_WR1),
        "rootless": maybe(one_of(get_args(Rootless))),
        "files": _FD1,
        "tensors": maybe(WHOLE),
        "bytes": WHOLE,
        "hashedBytes": WHOLE,
    }
    well = record({"ok": {"const": True}, **measured, "defects": listed(ref("defect"), maxItems=0)})
    ill = record({"ok": {"const": False}, "path": TEXT, "defects": listed(ref("defect"), minItems=1)})
    weights = {"weights": listed({"anyOf": [well, ill]}, minItems=1)}
    return [answer(weights), answer({**measured, **weights}), answer({"path": TEXT, **weights})]


def _energies() -> Schema:
    """The share of the change that lies in so many directions, by their number."""
    return record({str(rank): {"type": "number", "minimum": 0, "maximum": 1} for rank in RANKS})


def _spectrum() -> Schema:
    left_out = record({}, dict.fromkeys(get_args(Gap), WHOLE))
    return record({"measured": WHOLE, "adapters": WHOLE, "rank": maybe(WHOLE), "energy": maybe(_energies()), "notMeasured": left_out})


def _tensor() -> Schema:
    count = maybe(WHOLE)
    numbers = {"changed": count, "valueChanged": count, "l2": _NORM, "maxAbs": _NORM, "relative": _NORM}
    return record(
        {
            "name": TEXT,
            "nameB": maybe(TEXT),
            "status": one_of(get_args(Status)),
            "dtype": TEXT,
            "dtypeB": maybe(TEXT),
            "shape": listed(WHOLE),
            "shapeB": maybe(listed(WHOLE)),
            "domain": maybe(one_of(get_args(Domain))),
            **numbers,
            "spectrum": maybe(record({"rows": WHOLE, "columns": WHOLE, "rank": maybe(WHOLE), "energy": _energies()})),
            "noSpectrum": maybe(one_of(get_args(Gap))),
            "nonFiniteCreated": count,
            "nonFiniteCleared": count,
            "sha256Before": maybe(_HEX),
            "sha256After": maybe(_HEX),
            "commonRows": maybe(record({"rows": WHOLE, "changed": count})),
            "aliasOf": maybe(TEXT),
            "aliases": listed(TEXT),
        }
    )


def _diff() -> list[Schema]:
    totals = {
        "tensors": WHOLE,
        "byStatus": record({}, dict.fromkeys(get_args(Status), WHOLE)),
        **dict.fromkeys(("elements", "changed", "valueChanged", "nonFiniteCreated", "nonFiniteCleared"), WHOLE),
        "l2": _NORM,
        "maxAbs": _NORM,
        "normA": _NORM,
        "withoutL2": WHOLE,
    }
    return [
        answer(
            {
                "a": TEXT,
                "b": TEXT,
                "complete": YES_OR_NO,
                "known": record({"a": WHOLE, "b": WHOLE, "baseRoot": maybe(TEXT)}),
                "roots": record({"a": maybe(_WR1), "b": maybe(_WR1)}),
                "rootless": record(dict.fromkeys(("a", "b"), maybe(one_of(get_args(Rootless))))),
                "totals": record(totals),
                "prefixes": listed(record({"a": TEXT, "b": TEXT})),
                "spectrum": _spectrum(),
                "tensors": listed(_tensor()),
                "recorded": maybe(record({"session": maybe(TEXT), "file": maybe(TEXT), "events": WHOLE})),
            }
        )
    ]


def _apply_root() -> list[Schema]:
    return [answer({"base": _WR1, "root": _WR1, "edits": WHOLE, "edited": WHOLE})]


def _composition() -> list[Schema]:
    base = {"anyOf": [_WR1, _FD1]}
    config: Schema = {"type": "object"}
    ran = record(
        {
            "adapters": listed(record({"root": _WR1, "config": config})),
            "base": base,
            "chatTemplate": maybe(SHA256),
            "dtype": one_of(LOAD_DTYPES),
            "merge": maybe({"type": "object", "required": ["rule"], "properties": {"rule": one_of(MERGE_RULES)}}),
            "quantization": {"anyOf": [NOTHING, TEXT, {"type": "object"}]},
            "tokenizer": SHA256,
        }
    )
    sources: Schema = {"type": "object", "additionalProperties": TEXT}
    made = record({"of": _MC1, "made": base})
    fields = {"digest": _MC1, "composition": ran, "baseArtifact": maybe(SHA256), "sources": sources, "derivation": maybe(made)}
    return [answer(fields)]


WEIGHTS: Final = {
    "weights root": _root,
    "weights diff": _diff,
    "weights apply-root": _apply_root,
    "weights composition": _composition,
}
