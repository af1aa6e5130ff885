"""Checkpoint layouts: how each library puts a checkpoint on a disk, and the one roster of them.

Rules kept here:

1. A new layout is one module and one line in ``LAYOUTS``; names, documents and messages follow from the roster.
2. Every layout is asked. A folder that several recognise is of none: nothing is read as the first that fits.
3. A folder that none recognises still has its weights read, for what they are worth on their own.
"""

from pathlib import Path
from typing import Final

from countermark.files.layouts import accelerate, accelerate_deepspeed, deepspeed, distributed, lightning, orbax, torchtune, transformers
from countermark.files.layouts.published import MANIFEST, PUBLISHED_NAMING
from countermark.files.layouts.reading import Kind, Layout, LayoutReading, Naming, Numbered
from countermark.files.layouts.weights import take_weights
from countermark.files.reading import Entry
from countermark.run.checkpoint import COMPONENTS, Component, ComponentUnreadable, Incomplete

__all__ = [
    "LAYOUTS",
    "UNKNOWN_LAYOUT",
    "Kind",
    "Layout",
    "LayoutReading",
    "Naming",
    "Numbered",
    "numbered",
    "read_layout",
    "recognised",
]

#: The roster, in the order in which everything lists it.
LAYOUTS: Final[tuple[Layout, ...]] = (
    transformers.MODEL,
    transformers.ADAPTER,
    accelerate.FOLDER,
    lightning.FILE,
    torchtune.FOLDER,
    orbax.FOLDER,
    deepspeed.TRAINERS,
    accelerate_deepspeed.FOLDER,
    deepspeed.ALONE,
    distributed.TORCHTITAN,
    distributed.ANY,
)

#: The layout of a folder that none of the roster recognises, or several do.
UNKNOWN_LAYOUT: Final = "unknown"


def numbered(name: str, kind: Kind, of: str = UNKNOWN_LAYOUT) -> Numbered | None:
    """What the name of a checkpoint of this layout says; of an unknown one, or where it is not one of the layout's names, what it says in
    any. None where no layout and no publisher names one like this."""
    own = tuple(naming for layout in LAYOUTS if layout.name == of for naming in layout.names)
    namings = (*own, PUBLISHED_NAMING, *(naming for layout in LAYOUTS if layout.kind == kind for naming in layout.names))
    return next((found for naming in namings if (found := naming.numbered(name)) is not None), None)


def recognised(path: Path, kind: Kind, entries: tuple[Entry, ...]) -> tuple[Layout, ...]:
    """The layouts that say that a checkpoint is theirs. Our own manifest lies beside the files of any of them."""
    files = tuple(entry for entry in entries if entry.name != MANIFEST)
    return tuple(layout for layout in LAYOUTS if layout.kind == kind and layout.recognises(path, files))


def read_layout(path: Path, kind: Kind, entries: tuple[Entry, ...], declared: str | None = None) -> tuple[str, LayoutReading]:
    """The name of a checkpoint's layout, and its five components as its files hold them. Where a layout is ``declared``, it is read as that
    one: what was published has another name than its trainer gave it, and a single file lies in a folder."""
    layouts = tuple(layout for layout in LAYOUTS if layout.name == declared) or recognised(path, kind, entries)
    if len(layouts) == 1:
        return layouts[0].name, layouts[0].read(*_place(layouts[0], path, kind, entries))
    reading = LayoutReading()
    if not layouts:
        weights = take_weights(path, frozenset(entry.name for entry in entries), reading)
        return UNKNOWN_LAYOUT, reading.settle({Component.MODEL_WEIGHTS: weights})
    why = f"its files are those of {' and of '.join(layout.name for layout in layouts)}: nothing tells which of them it is"
    reading.publication = Incomplete((why,))
    reading.components = {component: ComponentUnreadable((why,)) for component in COMPONENTS}
    return UNKNOWN_LAYOUT, reading


def _place(layout: Layout, path: Path, kind: Kind, entries: tuple[Entry, ...]) -> tuple[Path, tuple[Entry, ...]]:
    """Where a layout finds its checkpoint: where it lies, and where it is a file that was published, in its folder."""
    files = tuple(entry for entry in entries if entry.kind == layout.kind and entry.name != MANIFEST)
    return (path / files[0].name, files[:1]) if layout.kind != kind and len(files) == 1 else (path, entries)
