"""What the steps of a script's own loop show: whose loss is differentiated, of which rows, and how a step's micro batches weigh.

Rules kept here:

1. Nothing is computed and nothing is changed: tensors are told apart as objects, in the graph that the loss came out of. Only target
   tokens are counted, and only where a step takes several micro batches.
2. The computation that is specified averages a step over its target tokens. Micro batches that are averaged each by itself come to the same
   where they have equally many, and where each is a step of its own; where they do not, the accumulation is another one.
3. The first thing of each kind that was otherwise is kept and named with its step; what follows it is not looked at any more.
"""

from collections.abc import Mapping
from typing import Any, Final, cast, final

from countermark.train.libraries import library
from countermark.train.sequences import IGNORED

_FED: Final = ("input_ids", "labels", "attention_mask")


@final
class StepWatch:
    """Follows one model through forward and backward passes. ``problems`` are what a step did that no coordinate holds."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.averaging = ""
        self.micro_batches = 0
        self._step = 1
        self._batch: Mapping[str, Any] = {}
        self._passes: list[Any] = []
        self._targets: list[int] = []

    def attach(self, model: Any) -> None:
        """Follow a model from now on."""
        model.register_forward_hook(self._forward, with_kwargs=True)

    def batch(self, batch: Any) -> None:
        """The micro batch that comes next."""
        self._batch = cast("Mapping[str, Any]", batch) if isinstance(batch, Mapping) else {}
        self._passes.clear()

    def backward(self, loss: Any, divided: int | None) -> None:
        """A loss is about to be differentiated. ``divided``: by what the library has divided it already (None: not yet)."""
        self.micro_batches += 1
        losses = [passed.grad_fn for passed in self._passes if passed is not None]
        if len(self._passes) != 1:
            self._note("passes", f"a micro batch took {len(self._passes)} passes through the model")
        elif not losses or _undivided(loss.grad_fn, divided) is not losses[0]:
            self._note("loss", "the loss is not the one that the model computes")
        self._passes.clear()

    def step(self, step: int) -> None:
        """An optimizer step was taken, which is this one."""
        if len(set(self._targets)) > 1 and not self.averaging:
            self.averaging = (
                f"the micro batches of step {step} have {', '.join(map(str, self._targets))} target tokens and are averaged each by "
                "itself, where a step is averaged over its tokens"
            )
        self._targets.clear()
        self._step = step + 1

    def _forward(self, model: Any, args: Any, kwargs: Mapping[str, Any], output: Any) -> None:
        torch = library("torch")
        if not torch.is_grad_enabled():
            return
        self._passes.append(getattr(output, "loss", None))
        if resting := next((name or "the model" for name, module in model.named_modules() if not module.training), None):
            self._note("rest", f"{resting} was not in training mode")
        if args or any(kwargs.get(name) is not self._batch.get(name) for name in _FED):
            self._note("rows", "the model was handed something else than the loader's micro batch")
        labels = kwargs.get("labels")
        if labels is not None:
            self._targets.append(int((labels[..., 1:] != IGNORED).sum()))

    def _note(self, kind: str, problem: str) -> None:
        self.problems.setdefault(kind, f"{problem} in step {self._step}")


def _undivided(node: Any, divided: int | None) -> Any:
    """Where in the graph a loss was computed, out of the one division that a library is known to make."""
    if divided is None or type(node).__name__ != "DivBackward0" or node._saved_other != divided:
        return node
    return node.next_functions[0][0]
