"""One target under the fuzzer, in a process of its own: ``python -m tests.fuzz.child NAME ARGUMENTS-OF-LIBFUZZER``.

The readers are imported with their branches counted, so that an input that reaches a new one is kept; the judges are not.
"""

import sys

import atheris

with atheris.instrument_imports(include=["countermark.files", "countermark.weights", "pickletools", "zipfile"]):
    from countermark.files import archive, documents, gguf, npz, opened_weights, pickles, safetensors, torch_weights, zstd  # noqa: F401
    from countermark.files.layouts import dcp_metadata, ocdbt, orbax  # noqa: F401

from tests.fuzz.targets import TARGETS, examine, watched


def main() -> None:
    target = TARGETS[sys.argv[1]]

    def one(data: bytes) -> None:
        examine(target, data)

    with watched():
        atheris.Setup([sys.argv[0], *sys.argv[2:]], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
