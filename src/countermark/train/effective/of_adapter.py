"""The adapter: its method, the modules that it adapts, rank, scaling, dropout, and the seed that its first weights were drawn from.

Rules kept here:

1. Everything is read off the layers in the model, the initialization's name off the adapter's configuration, and then proven: drawn again
   from the seed, the first weights come out bit for bit.
2. What is trained beside the adapter's own tensors, and what the configuration, the arguments or the trainer change that no coordinate
   holds, leaves ``method`` unread.
3. A resumed training has no first weights to prove; they were proven when the run began.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from countermark.evidence.members import Read, Unread
from countermark.recipe import read_coordinate
from countermark.recipe.coordinates import ModuleNames
from countermark.train.build import INITIALIZATIONS
from countermark.train.effective.seen import NOT_YET, Live, Readings, Said, one_of, said
from countermark.train.libraries import library
from countermark.values import Unreadable

NAMES: Final = ("seed", "method", "target_modules", "rank", "scaling", "dropout")
PREFIX: Final = "base_model.model."
_WORDS: Final[Mapping[object, str]] = {peft: word for word, peft in INITIALIZATIONS.items()}


def read_adapter(live: Live) -> Readings:
    """The coordinates of ``NAMES``."""
    layers = adapted_modules(live.objects.model)
    adapters = {adapter for layer in layers.values() for adapter in layer.r}
    if len(adapters) != 1:
        why = Unread(f"the model has {len(adapters)} low-rank adapters, and this roster is of one")
        return {**dict.fromkeys(NAMES, why), "seed": _seed(live, proven=None)}
    adapter = adapters.pop()
    config = live.objects.model.peft_config[adapter]
    init = _WORDS.get(config.init_lora_weights)
    proven = _drawn_from_seed(layers, adapter, config, library("torch").initial_seed()) if live.fresh and init is not None else None
    return {
        "seed": _seed(live, proven),
        "method": _method(live, layers, adapter, config, init),
        "target_modules": _targets(live, set(layers)),
        "rank": one_of("rank", [layer.r[adapter] for layer in layers.values()], "adapted modules"),
        "scaling": one_of("scaling", [float(layer.scaling[adapter]) for layer in layers.values()], "adapted modules"),
        "dropout": _dropout([layer.lora_dropout[adapter] for layer in layers.values()]),
    }


def adapted_modules(model: Any) -> dict[str, Any]:
    """The adapted modules by their names in the base, in the model's order."""
    kind = library("peft.tuners.lora.layer").LoraLayer
    return {name.removeprefix(PREFIX): module for name, module in model.named_modules() if isinstance(module, kind)}


# --------------------------------------------------------------------------------------------------------------- method


def _method(live: Live, layers: Mapping[str, Any], adapter: str, config: Any, init: str | None) -> Said:
    resume = None if live.assignment.resume is None else str(live.assignment.resume)
    reasons = [*_trained_beside(live.objects.whole, layers), *live.objects.foreign(config, resume)]
    decomposed = {bool(layer.use_dora.get(adapter, False)) for layer in layers.values()}
    if len(decomposed) > 1:
        reasons.append("some modules are weight-decomposed and others are not")
    if init is None:
        reasons.append(f"the adapter begins by {config.init_lora_weights!r}, which this integration does not prove")
    if reasons:
        return Unread("; ".join(reasons))
    if live.objects.unseen():
        return NOT_YET
    return said("method", {"adapter": "dora" if decomposed.pop() else "lora", "init": init})


def _trained_beside(whole: Any, layers: Mapping[str, Any]) -> Iterator[str]:
    """What is trained and no part of the adapter, and what is part of it and not trained."""
    own = {id(tensor) for layer in layers.values() for tensor in _own_tensors(layer)}
    trained = {id(tensor): name for name, tensor in whole.named_parameters() if tensor.requires_grad}
    if beside := [name for key, name in trained.items() if key not in own]:
        yield f"{len(beside)} tensors are trained beside the adapter, {beside[0]} among them"
    if frozen := own - trained.keys():
        yield f"{len(frozen)} of the adapter's tensors are not trained"


def _own_tensors(layer: Any) -> Iterator[Any]:
    for part in layer.adapter_layer_names:
        held = getattr(layer, part, None)
        if held is not None:
            yield from held.parameters()


# ----------------------------------------------------------------------------------------------------- targets, dropout


def _targets(live: Live, adapted: set[str]) -> Said:
    """The names that select exactly the adapted modules: the desired ones if they do, else last parts of names, else whole names."""
    modules = {name.removeprefix(PREFIX) for name, _ in live.objects.model.named_modules() if name}
    outside = {name for name in modules if not any(name.startswith(inside + ".") for inside in adapted)}
    desired = read_coordinate("target_modules", live.assignment.desired["target_modules"])
    last = tuple(sorted({name.rpartition(".")[2] for name in adapted}))
    for names in (desired.names if isinstance(desired, ModuleNames) else (), last):
        if {name for name in outside if _selected(name, names)} == adapted:
            return said("target_modules", names)
    return said("target_modules", tuple(sorted(adapted)))


def _selected(name: str, names: tuple[str, ...]) -> bool:
    """Whether PEFT takes a module for one of these names."""
    return any(name == one or name.endswith("." + one) for one in names)


def _dropout(modules: list[Any]) -> Said:
    torch = library("torch")
    rates: list[float] = []
    for module in modules:
        if type(module) not in (torch.nn.Identity, torch.nn.Dropout):
            return Unread(f"the adapter drops out by a {type(module).__name__}, which no coordinate holds")
        rates.append(float(module.p) if type(module) is torch.nn.Dropout else 0.0)
    distinct = list(dict.fromkeys(rates))
    if len(distinct) != 1:
        return one_of("dropout", distinct, "adapted modules")
    return said("dropout", 1000) if distinct[0] == 1.0 else said("dropout", distinct[0])


# ----------------------------------------------------------------------------------------------------------------- seed


def _seed(live: Live, proven: bool | None) -> Said:
    """The seed of torch's generator, which dropout draws from; and the adapter's first weights must come from it."""
    seeded = library("torch").initial_seed()
    told = live.objects.seed
    if told is not None and seeded != told:
        return Unread(f"the generator was seeded with {seeded}, and the arguments say {told}")
    found = said("seed", seeded)
    desired = read_coordinate("seed", live.assignment.desired["seed"])
    assert not isinstance(desired, Unreadable)
    if live.fresh and proven is not True and isinstance(found, Read) and found.value == desired.spell():
        return Unread(f"the adapter's first weights are not those that seed {seeded} draws")
    return found


def _drawn_from_seed(layers: Mapping[str, Any], adapter: str, config: Any, seed: int) -> bool:
    """Whether the adapter's weights are those that PEFT draws right after the generator was seeded.

    The adapter is drawn again over stand-ins of the adapted modules, whose memory is never touched; torch's generator is left as it was.
    """
    torch, peft = library("torch"), library("peft")
    stand_ins = torch.nn.Module()
    for at, layer in enumerate(layers.values()):
        base = layer.get_base_layer()
        if type(base) is not torch.nn.Linear:
            return False
        stand_in = torch.nn.utils.skip_init(torch.nn.Linear, base.in_features, base.out_features, bias=base.bias is not None)
        stand_ins.add_module(f"m{at}", stand_in.to(base.weight.dtype))
    again = peft.LoraConfig(
        r=config.r,
        lora_alpha=config.lora_alpha,
        use_rslora=config.use_rslora,
        lora_dropout=config.lora_dropout,
        init_lora_weights=config.init_lora_weights,
        target_modules=[f"m{at}" for at in range(len(layers))],
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        peft.inject_adapter_in_model(again, stand_ins, adapter_name=adapter)
    for at, layer in enumerate(layers.values()):
        drawn = getattr(stand_ins, f"m{at}")
        for part in ("lora_A", "lora_B"):
            ours, theirs = getattr(layer, part)[adapter].weight, getattr(drawn, part)[adapter].weight
            if not torch.equal(ours.detach().cpu(), theirs.detach().to(ours.dtype)):
                return False
    return True
