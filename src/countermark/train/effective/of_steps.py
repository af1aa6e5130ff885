"""What each optimizer step does: optimizer, weight decay, learning rate, schedule, warm-up, length, gradient clipping.

Read off the optimizer's groups, the scheduler's own functions with their bound arguments, and what the library
shows of length and clipping.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from countermark.evidence.members import Unread
from countermark.train.effective.seen import NOT_YET, Live, Readings, Said, one_of, said, type_name
from countermark.train.libraries import library

NAMES: Final = ("optimizer", "weight_decay", "learning_rate", "lr_schedule", "warmup_steps", "total_steps", "max_grad_norm")
#: Switches of torch's AdamW that change what it computes and that no coordinate holds.
_SWITCHES: Final = ("amsgrad", "maximize", "differentiable", "capturable")
_OPTIMIZATION: Final = "transformers.optimization"


def read_steps(live: Live) -> Readings:
    """The coordinates of ``NAMES``."""
    groups = [group for group in live.objects.optimizer.param_groups if group["params"]]
    schedule, warmup = _schedule(live)
    return {
        "optimizer": _optimizer(live, groups),
        "weight_decay": one_of("weight_decay", [group["weight_decay"] for group in groups], "optimizer's groups"),
        "learning_rate": _learning_rate(live, groups),
        "lr_schedule": schedule,
        "warmup_steps": warmup,
        "total_steps": _total(live),
        "max_grad_norm": live.objects.clipping,
    }


def _total(live: Live) -> Said:
    total = live.objects.step if live.ended else live.objects.total
    return NOT_YET if total is None else said("total_steps", total)


def _optimizer(live: Live, groups: list[dict[str, Any]]) -> Said:
    optimizer = live.objects.optimizer
    if type(optimizer) is not library("torch").optim.AdamW:
        return Unread(f"it is a {type_name(optimizer)}, which this integration does not know")
    stepped = [id(parameter) for group in groups for parameter in group["params"]]
    trained = {id(parameter) for parameter in live.objects.model.parameters() if parameter.requires_grad}
    if set(stepped) != trained or len(stepped) != len(trained):
        return Unread(f"it steps {len(stepped)} tensors, and {len(trained)} of the model's are trained")
    if switched := [name for name in _SWITCHES if any(group.get(name) for group in groups)]:
        return Unread(f"it is switched to {', '.join(switched)}, which no coordinate holds")
    forms = {(bool(group.get("fused")), *group["betas"], group["eps"]) for group in groups}
    if len(forms) != 1:
        return Unread(f"its groups have {len(forms)} different sets of numbers")
    fused, beta1, beta2, eps = forms.pop()
    name = "adamw_torch_fused" if fused else "adamw_torch"
    return said("optimizer", {"implementation": name, "beta1": beta1, "beta2": beta2, "eps": eps})


def _learning_rate(live: Live, groups: list[dict[str, Any]]) -> Said:
    """The scheduler multiplies the rates that it began with; the groups' own note of them must agree."""
    rates = list(getattr(live.objects.scheduler, "base_lrs", ()))
    noted = [group["initial_lr"] for group in groups if "initial_lr" in group]
    return one_of("learning_rate", [*rates, *noted], "learning rates that scheduler and optimizer began with")


def _schedule(live: Live) -> tuple[Said, Said]:
    """Schedule and warm-up, off the functions that compute the rate."""
    scheduler = live.objects.scheduler
    if type(scheduler) is not library("torch").optim.lr_scheduler.LambdaLR:
        unknown = Unread(f"the scheduler is a {type_name(scheduler)}, which this integration does not know")
        return unknown, unknown
    seen = {_function(one) for one in scheduler.lr_lambdas}
    if len(seen) != 1:
        several = Unread("the optimizer's groups follow several schedules")
        return several, several
    name, bound = next(iter(seen))
    known = _KNOWN.get(name)
    if known is None:
        foreign = Unread(f"the rate is computed by {name}, which this integration does not know")
        return foreign, foreign
    arguments = dict(bound)
    warmup = said("warmup_steps", arguments.get("num_warmup_steps", 0))
    total = live.objects.step if live.ended and live.objects.total is None else live.objects.total
    if total is None:
        return NOT_YET, warmup
    stepped = scheduler.last_epoch
    if live.ended and stepped != live.objects.step:
        return Unread(f"it was stepped {stepped} times in {live.objects.step} steps"), warmup
    form = known(arguments, total)
    return (Unread(form) if isinstance(form, str) else said("lr_schedule", form)), warmup


def _function(one: Any) -> tuple[str, tuple[tuple[str, object], ...]]:
    """A function that computes a rate: its name, and the arguments bound to it."""
    function = one.func if isinstance(one, partial) else one
    bound: Mapping[str, object] = one.keywords if isinstance(one, partial) else {}
    name, module = getattr(function, "__name__", "?"), getattr(function, "__module__", "?")
    return (name if module == _OPTIMIZATION else f"{module}.{name}"), tuple(sorted(bound.items()))


#: A form of the coordinate, or the sentence that says why the bound arguments are none.
_Form = dict[str, object] | str
_Arguments = Mapping[str, Any]


def _until(arguments: _Arguments, total: int, form: dict[str, object]) -> _Form:
    ends = arguments["num_training_steps"]
    return form if ends == total else f"it reaches its end at step {ends}, and the run takes {total}"


def _cosine(arguments: _Arguments, total: int) -> _Form:
    if arguments["num_cycles"] != 0.5:
        return f"it goes through {arguments['num_cycles']} waves of the cosine, and no coordinate holds that"
    lowest = arguments.get("min_lr_rate", 0)
    return _until(arguments, total, {"schedule": "cosine_with_min_lr", "min_lr_rate": lowest} if lowest else {"schedule": "cosine"})


def _restarts(arguments: _Arguments, total: int) -> _Form:
    cycles = arguments["num_cycles"]
    return _until(arguments, total, {"schedule": "cosine"} if cycles == 1 else {"schedule": "cosine_with_restarts", "cycles": cycles})


def _stable(arguments: _Arguments, total: int) -> _Form:
    if arguments["warmup_type"] != "linear" or arguments["num_cycles"] != 0.5:
        return "its warm-up or its wave is another one than the coordinate's"
    ends = arguments["num_warmup_steps"] + arguments["num_stable_steps"] + arguments["num_decay_steps"]
    if ends != total:
        return f"it reaches its end at step {ends}, and the run takes {total}"
    form = {"decay_steps": arguments["num_decay_steps"], "decay_shape": arguments["decay_type"]}
    return {"schedule": "warmup_stable_decay", **form, "min_lr_rate": arguments["min_lr_ratio"]}


_KNOWN: Final[Mapping[str, Callable[[_Arguments, int], _Form]]] = {
    "_get_constant_lambda": lambda arguments, total: {"schedule": "constant"},
    "_get_constant_schedule_with_warmup_lr_lambda": lambda arguments, total: {"schedule": "constant"},
    "_get_linear_schedule_with_warmup_lr_lambda": lambda arguments, total: _until(arguments, total, {"schedule": "linear"}),
    "_get_cosine_schedule_with_warmup_lr_lambda": _cosine,
    "_get_cosine_with_hard_restarts_schedule_with_warmup_lr_lambda": _restarts,
    "_get_polynomial_decay_schedule_with_warmup_lr_lambda": lambda arguments, total: _until(
        arguments, total, {"schedule": "polynomial", "lr_end": arguments["lr_end"], "power": arguments["power"]}
    ),
    "_get_inverse_sqrt_schedule_lr_lambda": lambda arguments, total: {"schedule": "inverse_sqrt", "timescale": arguments["timescale"]},
    "_get_wsd_scheduler_lambda": _stable,
}
