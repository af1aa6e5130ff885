"""Controls of the Work key: what moves it, what does not, and that no part of its material can go missing unseen."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.recipe import (
    ENTRIES,
    ROSTER,
    Requirements,
    Resolution,
    WorkKey,
    contract_of,
    derive_work_key,
    key_material,
    observed,
    resolve,
)
from countermark.recipe import canonical as canonical_module
from countermark.recipe import work as work_module
from countermark.recipe.canonical import length_prefixed
from countermark.recipe.work import Contract, digest_of_material
from countermark.values import Principal, Refused, Sha256, Unreadable
from tests.faults import planted, proven_by
from tests.recipe import perturbations
from tests.recipe.examples import clean_manifest, clean_resolution, clean_spellings
from tests.recipe.perturbations import PERTURBATIONS, leaves_wanted

LOCAL = Principal("local")


def key_of(**changes: str) -> WorkKey:
    return derive_work_key(LOCAL, contract_of(clean_resolution(**changes)), Requirements())


def without(coordinate: str) -> Callable[[], AbstractContextManager[object]]:
    """The fault that a coordinate's row is left out of the material."""
    real = work_module.key_rows

    @contextmanager
    def fault() -> Iterator[None]:
        rest = planted(work_module, "key_rows", lambda manifest: tuple(row for row in real(manifest) if row[0] != coordinate))
        with rest():
            yield

    fault.__name__ = f"no row for {coordinate}"
    return fault


@proven_by(*(without(name) for name in ROSTER))
def test_every_perturbation_of_every_leaf_moves_the_key() -> None:
    still = [
        leaf for leaf, change in PERTURBATIONS.items() if key_of(**{change.coordinate: change.a}) == key_of(**{change.coordinate: change.b})
    ]
    assert still == []


@proven_by(planted(perturbations, "ENTRIES", {**ENTRIES, "a coordinate of tomorrow": ENTRIES["seed"]}))
def test_every_leaf_of_the_roster_has_two_values() -> None:
    assert set(PERTURBATIONS) == leaves_wanted()


def test_a_perturbation_changes_one_leaf_of_one_coordinate_alone() -> None:
    for leaf, change in PERTURBATIONS.items():
        a, b = (dict(key_material(clean_resolution(**{change.coordinate: text}).manifest, Requirements())) for text in (change.a, change.b))
        assert {name for name in a if a[name] != b[name]} == {change.coordinate}, leaf


def test_every_word_and_every_form_is_a_key_of_its_own() -> None:
    """Each value of a closed list, against each other one."""
    starts: dict[str, set[str]] = {name: set() for name in ROSTER}
    for change in PERTURBATIONS.values():
        starts[change.coordinate] |= {change.a, change.b}
    for name in ("numeric_format", "packing", "loss_mask"):
        starts[name] |= set(ENTRIES[name].kind.plain[0].words)
    starts["method"] |= {f"{arm}(init={word})" for arm in ("lora", "dora") for word in ("kaiming", "gaussian", "orthogonal")}
    starts["lr_schedule"] |= {"constant", "linear", "cosine"}
    for name, texts in starts.items():
        keys = {text: key_of(**{name: text}).digest for text in texts}
        assert len(set(keys.values())) == len(texts), name


def test_another_principal_is_another_key_of_the_same_digest() -> None:
    contract = contract_of(clean_resolution())
    ours, theirs = (derive_work_key(Principal(name), contract, Requirements()) for name in ("local", "team-a"))
    assert ours != theirs
    assert ours.digest == theirs.digest
    assert ours.spell() == theirs.spell() == "wk1:" + ours.digest.hex


FAMILY = Unreadable("a Work key begins with wk1:")
DIGITS = Unreadable("wk1: must be followed by 64 lower-case hexadecimal digits")


def test_a_key_reads_back_and_nothing_else_does() -> None:
    key = key_of()
    assert WorkKey.read("local", key.spell()) == key
    assert str(key) == key.spell() == "wk1:" + key.digest.hex
    for text, why in [
        (key.digest.spell(), FAMILY),
        (None, FAMILY),
        (7, FAMILY),
        (key.spell().upper(), FAMILY),
        (key.digest.hex, FAMILY),
        (key.digest.hex + "wk1:", FAMILY),
        ("wk1:xyz", DIGITS),
        ("wk1:", DIGITS),
        ("wk1:" + key.digest.hex.upper(), DIGITS),
        ("wk1:" + key.spell(), DIGITS),
    ]:
        assert WorkKey.read("local", text) == why, text
    for account in ("", None):
        assert WorkKey.read(account, key.spell()) == Principal.read(account)
        assert isinstance(Principal.read(account), Unreadable)


def test_the_material_is_the_domain_the_requirements_and_the_coordinates_in_name_order() -> None:
    material = key_material(clean_resolution().manifest, Requirements())
    assert material[:2] == (("domain", "countermark/work/1"), ("requirements", "produces=adapter"))
    assert dict(material[2:]) == clean_spellings()
    assert [name for name, _ in material[2:]] == sorted(ROSTER)


def test_receipts_move_nothing() -> None:
    spelled = clean_spellings()
    one = resolve(observed(spelled, "a.toml", "countermark 1"))
    other = resolve(observed(dict(reversed(spelled.items())), "b.yaml", "axolotl 3"))
    assert isinstance(one, Resolution)
    assert isinstance(other, Resolution)
    assert one.receipts != other.receipts
    assert derive_work_key(LOCAL, contract_of(one), Requirements()) == derive_work_key(LOCAL, contract_of(other), Requirements())


@pytest.mark.parametrize(
    "changes",
    [
        {"learning_rate": "2e-4"},
        {"learning_rate": "0.00020"},
        {"learning_rate": "+.2E-3"},
        {"target_modules": "v_proj,q_proj"},
        {"target_modules": "q_proj, v_proj ,q_proj"},
        {"target_modules": "q_proj,v_proj,self_attn.q_proj"},
        {"optimizer": "adamw_torch( eps = 0.00000001, beta2=0.9990, beta1=.9 )"},
        {"dropout": "0.05"},
        {"scaling": "2.0"},
        {"warmup_steps": "+2"},
    ],
)
def test_spelling_order_and_repetition_move_nothing(changes: dict[str, str]) -> None:
    assert key_of(**changes) == key_of()


# Texts made of separators, empty texts and two unicode forms of one letter: what a careless joining would confuse.
TEXTS = st.text(alphabet=[",", "=", "(", ")", "\x00", "\n", "a", "é", "e", "\u0301", "\ud800", "8"], max_size=4)
MATERIAL = st.lists(st.tuples(TEXTS, TEXTS), max_size=4).map(tuple)


def split_elsewhere(material: tuple[tuple[str, str], ...]) -> list[tuple[tuple[str, str], ...]]:
    """Other materials with the same letters: every way of moving one letter over a border."""
    flat = [part for row in material for part in row]
    found = []
    for at in range(len(flat) - 1):
        if flat[at]:
            moved = [*flat[:at], flat[at][:-1], flat[at][-1] + flat[at + 1], *flat[at + 2 :]]
            found.append(tuple(zip(moved[::2], moved[1::2], strict=True)))
    return found


def joined(*parts: bytes) -> bytes:
    return b"".join(parts)


def separated(*parts: bytes) -> bytes:
    return b"\x00".join(parts)


def counted(*parts: bytes) -> bytes:
    return b"".join(str(len(part)).encode() + part for part in parts)


@proven_by(
    planted(work_module, "length_prefixed", joined),
    planted(work_module, "length_prefixed", separated),
    planted(work_module, "length_prefixed", counted),
)
def test_two_materials_never_share_a_digest() -> None:
    @given(MATERIAL)
    def never(material: tuple[tuple[str, str], ...]) -> None:
        digest = digest_of_material(material)
        for other in (*split_elsewhere(material), (*material, ("", "")), material[:-1] if material else (("", ""),)):
            assert other == material or digest_of_material(other) != digest, other

    never()
    hand_made = [
        (("a", ""),), (("", "a"),), (("a", "8"), ("", "")), (("\x00", "a"),), (("", "\x00a"),), (("é", ""),), (("e\u0301", ""),),
        (("1", "1a"),), (("11", "a"),), (("1", ""), ("123456789", "x")), (("09123456789", "x"),), (("1a", "a"),), (("", "1a"), ("a", "")),
    ]  # fmt: skip
    for one, other in combinations(hand_made, 2):
        assert digest_of_material(one) != digest_of_material(other), (one, other)


@given(st.lists(st.binary(max_size=12), max_size=5))
def test_length_prefixed_parts_can_be_taken_apart_again(parts: list[bytes]) -> None:
    rest, found = length_prefixed(*parts), []
    while rest:
        size = int.from_bytes(rest[:8], "big")
        found.append(rest[8 : 8 + size])
        rest = rest[8 + size :]
    assert found == parts


def test_requirements_are_closed() -> None:
    assert Requirements.read("produces=adapter") == Requirements()
    only = Unreadable("the only requirements are produces=adapter")
    assert [Requirements.read(raw) for raw in ("produces=model", "", None)] == [only] * 3
    with pytest.raises(ValueError, match=r"^a work produces an adapter$"):
        Requirements("model")  # type: ignore[arg-type]


def test_contracts_and_resolutions_are_minted_by_their_makers_alone() -> None:
    with pytest.raises(ValueError, match=r"^a contract descends from a resolution$"):
        Contract(clean_manifest(), object())
    with pytest.raises(ValueError, match=r"^a resolution is minted by resolve$"):
        Resolution(clean_manifest(), (), (), object())
    assert not isinstance(resolve(observed(clean_spellings(), "a", "b")), Refused)


def test_the_digest_is_sha256_over_the_length_prefixed_material() -> None:
    import hashlib

    material = key_material(clean_resolution().manifest, Requirements())
    plain = b"".join(len(text.encode()).to_bytes(8, "big") + text.encode() for row in material for text in row)
    assert key_of().digest == Sha256(hashlib.sha256(plain).hexdigest())
    assert canonical_module.length_prefixed(b"a", b"") == b"\x00" * 7 + b"\x01a" + b"\x00" * 8
