"""Words of each format: what a change puts into an input to get somewhere that random bytes do not."""

from typing import Final

from tests.files.ggufs import text

_SIZES: Final = (b"0", b"-1", b"4", b"18446744073709551615", b"18446744073709551616", b"1099511627776", b"9" * 400)
JSON: Final = (
    *(bytes([one]) for one in b'"[]{},:'),
    *b"null true -0 1.5 1e400 NaN \\ud800 \\u0061 \\n".split(),
)
HEADER: Final = (
    *JSON,
    *_SIZES,
    *b'"__metadata__": "dtype":"F4" "dtype":"F32" "shape": "data_offsets": "a.weight": "c":{},'.split(),
)
INDEX: Final = (*JSON, *b'"weight_map": "x.safetensors" "../x"'.split())
#: Operations, each with a small argument, and the names that the readers know.
PICKLE: Final = (
    *(bytes([one]) for one in b"(]})teusabRQN\x85\x86\x87"),
    *(b"q\x01", b"h\x01", b"K\x00", b"K\xff", b"M\xff\xff", b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 8),
    *(b"X\x01\x00\x00\x00a", b"G" + bytes(8), b"G\x7f\xf0" + bytes(6), b"]q\x01h\x01a", b"ctorch._utils\n_rebuild_tensor_v2\n"),
    *(b"ccollections\nOrderedDict\n", b"ctorch\nFloatStorage\n", b"cnumpy\ndtype\n", b"cos\nsystem\n"),
)
ZIP: Final = (
    *(b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"\xff" * 4, bytes(4)),
    *b"archive/data.pkl archive/data/0 a.npy".split(),
)
NPY: Final = (
    *(b"\x93NUMPY\x01\x00", b"'descr': ", b"'fortran_order': ", b"'shape': ", b"[('a', '<f4')]", b"\\N{DIGIT ONE}"),
    *b"'<f4' '|O' '|b1' '<c8' True False (1,) () {[]} ( 1j -".split(),
    *_SIZES,
)
GGUF: Final = (
    *(bytes([kind, 0, 0, 0]) for kind in (4, 8, 9, 12, 30, 39)),
    *((1 << 60).to_bytes(8, "little"), b"\xff" * 8, bytes(8), bytes([32, *bytes(7)])),
    *(text(b"general.alignment"), text(b"a")),
)
EVENTS: Final = (
    *JSON,
    *_SIZES,
    *b'"type": "message" "payload": "kind":"weights.edit" "session": "time": "2026-12-03T08:00:00Z" "changed": \\u0000 "usage":'.split(),
)
OTLP: Final = (
    *JSON,
    *_SIZES,
    *b'"resourceSpans": "scopeLogs": "intValue": "arrayValue":{"values":[ "kvlistValue": "traceId": "timeUnixNano":'.split(),
)
#: Tags of fields with small lengths, and numbers of every width.
PROTOBUF: Final = (
    *(bytes([number << 3 | kind]) for number in (1, 2, 3, 5, 7) for kind in (0, 1, 2, 5)),
    *(b"\x00", b"\x7f", b"\xff" * 9 + b"\x01", b"\xff" * 8, bytes(8), b"\x0a\x02\x0a\x00", b"\xed\xa0\xbd", b"\x00weights.edit"),
)
#: What a ``.metadata`` is made of.
DCP: Final = (
    *PICKLE,
    *(b"ctorch\nSize\n", b"ctorch.distributed.checkpoint.metadata\nChunkStorageMetadata\n", b"cpathlib\nPosixPath\n", b"ctorch\nint64\n"),
    *b"offsets sizes chunks fqn offset relative_path length __0_0.distcp ../x.distcp".split(),
)
#: Numbers of seven bits a byte: small ones, one of 32 bits, one of 64, and one that has no end.
OCDBT: Final = (b"\x01", b"\x7f", b"\x80\x01", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 11)
ORBAX: Final = (
    *JSON,
    *_SIZES,
    *b'"tree_metadata": "key_metadata": "value_metadata": "write_shape":[] "jax.Array" "use_ocdbt":true "use_zarr3":true "../x"'.split(),
)
#: The start of a frame, of one that is skipped, and the heads of blocks: raw, repeated and compressed, the last and not.
ZSTD: Final = (
    *(b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18", b"\x20\x04", b"\x60\x00\x00", b"\xe0" + b"\xff" * 8),
    *(b"\x01\x00\x00", b"\x03\xff\xff", b"\x02\xff\x1f", b"\x05\x00\x00", b"\xff\xff\xff"),
)
