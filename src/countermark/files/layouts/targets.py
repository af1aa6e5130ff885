"""Whether an adapter's configuration and its weights are of one adapter, as far as these two tell it without their base.

Rules kept here:

1. What PEFT could not have written is refused: weights of a module that no target selects, which it leaves out on loading and says so in a
   warning alone, and targets where nothing is adapted.
2. A target that selects nothing beside others that do, and modules to save of which none was saved, are noted: PEFT lets a configuration
   name more than the base has.
3. What only the base could tell is left open: targets by a pattern or by a word for all layers, parameters as targets, and layers that are
   tied.
4. PEFT writes weights that it does not train too: of an embedding that it adapts, or that was resized. No optimizer steps them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, cast

from countermark.files.adapter import AdapterConfig
from countermark.files.documents import as_list
from countermark.values import shown

_PREFIX: Final = "base_model.model."
_ADAPTED: Final = ".lora_"
#: Parts of the names of what an adapter itself trains.
_OWN: Final = (_ADAPTED, ".trainable_tokens_")
_TOLD_MAX: Final = 3
#: A name of more parts than this is of no model, and no list of modules to save is looked through any further.
_PARTS_MAX: Final = 64


def disagreements(config: AdapterConfig, tensors: Collection[str]) -> Iterator[str]:
    """Why a configuration is not that of the adapter whose tensors have these names."""
    if config.values.get("peft_type") != "LORA":
        return
    modules = adapted(tensors)
    selected = _selected(config.values)
    if selected is not None and not modules:
        yield "its target_modules are adapted, and the weights hold nothing of any"
    elif selected is not None and (others := [module for module in modules if not selected(module)]):
        yield f"the weights hold {_some(others)}, which its target_modules do not select"


def trained(config: AdapterConfig, tensors: Collection[str]) -> Iterator[str]:
    """The tensors that an optimizer of the adapter steps, out of these names."""
    # PEFT saves every module whose name ends like this, after a dot or not.
    saved = _names(config.values.get("modules_to_save"))[:_PARTS_MAX]
    biases = config.values.get("bias", "none") != "none"
    for name in tensors:
        own = any(part in name for part in _OWN) or any(f"{module}." in name for module in saved)
        if own or (biases and name.endswith(".bias")) or config.values.get("peft_type") != "LORA":
            yield name


def unused(config: AdapterConfig, tensors: Collection[str]) -> Iterator[str]:
    """What a configuration names and the weights hold nothing of: the base has it not, or they are of another adapter."""
    if config.values.get("peft_type") != "LORA" or config.values.get("target_parameters"):
        return
    used = {ending for module in adapted(tensors) for ending in _endings(module)}
    if targets := [name for name in _names(config.values.get("target_modules")) if name not in used]:
        yield f"target_modules {_some(targets)}"
    saved = _names(config.values.get("modules_to_save"))
    beside = "\n".join(name for name in tensors if _ADAPTED not in name)
    if saved and not any(f"{name}." in beside for name in saved[:_PARTS_MAX]):
        yield f"modules_to_save {_some(saved)}"


def adapted(tensors: Collection[str]) -> tuple[str, ...]:
    """The adapted modules by their names in the base."""
    found = {name.rsplit(_ADAPTED, 1)[0].removeprefix(_PREFIX) for name in tensors if _ADAPTED in name}
    return tuple(sorted(found))


def _selected(values: Mapping[str, object]) -> Callable[[str], bool] | None:
    """Whether a module is one that the configuration adapts; None where the base alone could tell."""
    targets, excluded = frozenset(_names(values.get("target_modules"))), frozenset(_names(values.get("exclude_modules")))
    beside = (values.get(name) for name in ("target_parameters", "ensure_weight_tying", "arrow_config"))
    if not targets or any(beside):
        return None
    layers = _layers(values)

    def selected(module: str) -> bool:
        endings = frozenset(_endings(module))
        if not endings:
            return True
        # PEFT takes the first number in a name for its layer's, and took the last one before.
        at_its_layer = layers is None or module in targets or not layers.isdisjoint(module.split("."))
        return not endings.isdisjoint(targets) and endings.isdisjoint(excluded) and at_its_layer

    return selected


def _layers(values: Mapping[str, object]) -> frozenset[str] | None:
    """The numbers of the layers that are adapted, as names spell them; None for all of them."""
    told = values.get("layers_to_transform")
    listed = [told] if isinstance(told, int) else as_list(told) or []
    return frozenset(map(str, listed)) or None


def _names(value: object) -> tuple[str, ...]:
    """A list of names; none where it is something else."""
    listed = as_list(value) or []
    return tuple(cast("list[str]", listed)) if all(isinstance(one, str) for one in listed) else ()


def _endings(module: str) -> list[str]:
    """A module's name and what it ends with after each dot; nothing for a name of more parts than any has."""
    parts = module.split(".", _PARTS_MAX)
    return [".".join(parts[at:]) for at in range(len(parts))] if len(parts) <= _PARTS_MAX else []


def _some(names: Collection[str]) -> str:
    told = ", ".join(shown(name) for name in list(names)[:_TOLD_MAX])
    return f"{told} and {len(names) - _TOLD_MAX} more" if len(names) > _TOLD_MAX else told
