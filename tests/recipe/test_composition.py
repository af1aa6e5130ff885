"""What moves ``mc1`` and what does not, and everything that what was said can be refused for."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.recipe import composition
from countermark.recipe.canonical import canonical_json
from countermark.recipe.composition import (
    LOAD_DTYPES,
    MERGE_RULES,
    AdapterPart,
    Composition,
    CompositionContradicts,
    CompositionUnreadable,
    Merge,
    read_dtype,
    read_merge,
    read_quantization,
    settled_quantization,
    template_digest,
)
from countermark.values import CompositionDigest, FilesDigest, NonEmpty, Refused, Sha256, WeightsRoot
from tests.faults import planted, proven_by


def part(digit: str, **config: object) -> AdapterPart:
    return AdapterPart(WeightsRoot(digit * 64), {"r": 8, "lora_alpha": 16, **config})


CLEAN = Composition(
    base=WeightsRoot("a" * 64),
    adapters=(part("b"), part("c")),
    merge=Merge("active", {}),
    tokenizer=Sha256("d" * 64),
    chat_template=template_digest("{{ messages }}"),
    dtype="bfloat16",
    quantization=None,
)

#: One part at a time is another one.
CHANGES: dict[str, dict[str, Any]] = {
    "base": {"base": WeightsRoot("e" * 64)},
    "base of another kind": {"base": FilesDigest("a" * 64)},
    "order of adapters": {"adapters": CLEAN.adapters[::-1]},
    "one adapter less": {"adapters": CLEAN.adapters[:1]},
    "no adapter": {"adapters": (), "merge": None},
    "alpha": {"adapters": (part("b", lora_alpha=32), part("c"))},
    "weights of an adapter": {"adapters": (part("b"), part("f"))},
    "merge rule": {"merge": Merge("merged", {})},
    "merge settings": {"merge": Merge("active", {"weights": [0.5, 0.5]})},
    "tokenizer": {"tokenizer": Sha256("e" * 64)},
    "chat template": {"chat_template": template_digest("{{ messages  }}")},
    "no chat template": {"chat_template": None},
    "dtype": {"dtype": "float16"},
    "quantization": {"quantization": "nf4"},
    "quantization of its own": {"quantization": {"quant_method": "gptq", "bits": 4}},
}


def without_order(self: Composition) -> CompositionDigest:
    """Only which adapters there are, and the plain fields that a name shows."""
    roots = sorted(adapter.root.spell() for adapter in self.adapters)
    return CompositionDigest(hashlib.sha256(repr((self.base.spell(), roots, self.dtype)).encode()).hexdigest())


@proven_by(planted(Composition, "digest", without_order))
def test_every_part_moves_the_digest_and_no_two_changes_are_one() -> None:
    digests = {name: replace(CLEAN, **change).digest() for name, change in CHANGES.items()} | {"clean": CLEAN.digest()}
    assert len({digest.spell() for digest in digests.values()}) == len(CHANGES) + 1


def test_the_digest_is_that_of_the_canonical_document() -> None:
    """Anybody can check it with a JSON tool and sha256sum: the parts and their names are written down here."""
    text = json.dumps(
        {
            "adapters": [
                {"config": {"lora_alpha": 16, "r": 8}, "root": "wr1:" + "b" * 64},
                {"config": {"lora_alpha": 16, "r": 8}, "root": "wr1:" + "c" * 64},
            ],
            "base": "wr1:" + "a" * 64,
            "chatTemplate": "sha256:" + hashlib.sha256(b"{{ messages }}").hexdigest(),
            "dtype": "bfloat16",
            "merge": {"rule": "active"},
            "quantization": None,
            "tokenizer": "sha256:" + "d" * 64,
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    assert CLEAN.digest().spell() == "mc1:" + hashlib.sha256(text.encode()).hexdigest()
    assert canonical_json(CLEAN.document()).decode() == text


@proven_by(planted(composition, "_in_order", lambda key, value: value))
def test_the_first_pattern_that_fits_counts_so_their_order_does() -> None:
    for key in ("rank_pattern", "alpha_pattern"):
        one, other = (replace(CLEAN, adapters=(part("b", **{key: table}),)) for table in ({"q": 2, ".*": 4}, {".*": 4, "q": 2}))
        assert one.digest() != other.digest()
    one, other = (replace(CLEAN, adapters=(part("b", loftq_config=table),)) for table in ({"a": 2, "b": 4}, {"b": 4, "a": 2}))
    assert one.digest() == other.digest()


@given(st.permutations(sorted({"r": 8, "lora_alpha": 16.0, "bias": "none", "target_modules": ["k", "q"]}.items())))
def test_the_order_of_keys_and_the_spelling_of_numbers_move_nothing(items: list[tuple[str, object]]) -> None:
    plain = {"bias": "none", "lora_alpha": 16, "r": 8.0, "target_modules": ["k", "q"]}
    assert replace(CLEAN, adapters=(AdapterPart(WeightsRoot("b" * 64), dict(items)),)).digest() == (
        replace(CLEAN, adapters=(AdapterPart(WeightsRoot("b" * 64), plain),)).digest()
    )


def test_what_disagrees_with_itself_is_no_composition() -> None:
    merge, dtype = "a merge rule is said exactly where there are adapters", "the load dtype is not spelled as torch spells it"
    broken: tuple[tuple[dict[str, Any], str], ...] = (
        ({"merge": None}, merge), ({"adapters": ()}, merge), ({"dtype": "bf16"}, dtype), ({"dtype": "auto"}, dtype),
    )  # fmt: skip
    for change, why in broken:
        with pytest.raises(ValueError, match=f"^{why}$"):
            replace(CLEAN, **change)


def test_a_template_is_the_digest_of_its_text_whatever_characters_it_has() -> None:
    assert template_digest(None) is None
    for text, encoded in (("", b""), ("{{ é }}", b"{{ \xc3\xa9 }}"), ("\ud800", b"\xed\xa0\x80")):
        assert template_digest(text) == Sha256(hashlib.sha256(encoded).hexdigest())


def test_a_type_has_one_spelling() -> None:
    for dtype, others in LOAD_DTYPES.items():
        assert {read_dtype(text) for name in (dtype, *others) for text in (name, name.upper(), f"torch.{name}")} == {dtype}
    names = [name for dtype, others in LOAD_DTYPES.items() for name in (dtype, *others)]
    assert len(names) == len(set(names))
    known = "known are float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2"
    for text, why in (("auto", "it says where to look, and not what was found"), ("int3", known), ("", known)):
        assert read_dtype(text) == CompositionUnreadable("dtype", text, why)


def first_wins(text: str, adapters: int) -> Merge | Refused[Any]:
    found = read_merge(text, adapters)
    return found if isinstance(found, Merge) else Refused(replace(found.defects, more=()))


@proven_by(planted(composition, "read_merge", first_wins))
def test_a_merge_rule_is_read_or_refused_for_everything() -> None:
    read = composition.read_merge
    assert read("active", 2) == Merge("active", {})
    assert read("ties density=0.5 weights=0.7,0.3", 2) == Merge("ties", {"density": 0.5, "weights": [0.7, 0.3]})
    assert read("ties weights=0.7,0.3  density=0.50", 2) == read("ties density=0.5 weights=0.70,0.30", 2)
    assert read("svd weights=1,-1 svd_rank=8 majority_sign_method=total", 2) == Merge(
        "svd", {"weights": [1, -1], "svd_rank": 8, "majority_sign_method": "total"}
    )
    assert json.dumps(read("svd weights=1,1.0 svd_rank=8 majority_sign_method=frequency", 2).document()) == (
        '{"rule": "svd", "weights": [1, 1.0], "svd_rank": 8, "majority_sign_method": "frequency"}'
    )
    rules = "the rules are " + ", ".join(MERGE_RULES)
    keys = "a rule's settings are density, majority_sign_method, seed, svd_rank, weights"
    needs = "linear needs weights=…, one for each adapter"
    cases = {
        "": [rules],
        "slerp": [rules],
        "linear": [needs],
        "linear weights=1": ["it has 1 weights for 2 adapters"],
        "linear weights=a,b density=x": [
            "'weights=a,b': numbers with commas between them were expected", "'density=x': a number was expected", needs,
        ],
        "linear weights=1=2": ["'weights=1=2': numbers with commas between them were expected", needs],
        "active svd_rank=8,9 majority_sign_method=most": [
            "'svd_rank=8,9': a number was expected", "'majority_sign_method=most': it is total or frequency",
        ],
        "slerp weights=1,2,3 density=1 density=2 t=1": [rules, "density stands twice", f"'t=1': {keys}", "it has 3 weights for 2 adapters"],
    }  # fmt: skip
    for text, whys in cases.items():
        assert read(text, 2) == Refused(NonEmpty.of(CompositionUnreadable("merge", text, why) for why in whys))


def test_a_stored_quantization_is_what_ran_unless_it_was_undone() -> None:
    stored = {"quant_method": "gptq", "bits": 4}
    assert [settled_quantization(None, said) for said in (None, "none", "nf4", stored)] == [None, None, "nf4", stored]
    assert [settled_quantization(stored, said) for said in (None, dict(stored), "dequantized")] == [stored, stored, "dequantized"]
    assert settled_quantization(stored, "none") == CompositionContradicts("quantization", "gptq", "none")
    assert settled_quantization(stored, {"bits": 8}) == CompositionContradicts("quantization", "gptq", "another configuration")
    assert settled_quantization({"bits": 4}, "nf4") == CompositionContradicts("quantization", "a configuration of its own", "nf4")
    assert read_quantization("nf4") == "nf4"
    assert read_quantization("n f") == CompositionUnreadable("quantization", "n f", "a quantization is a name, or a file of JSON")
