#!/usr/bin/env python3
"""Make testdata/schemes: groups of every coded weight scheme, and the f32 values that ggml's formulas give them.

    schemes.py --ggml LIBGGML_BASE [--check]

SCHEME.groups has half its groups from ggml's own quantizer (`ggml_quantize_chunk`), over values with a few large ones; the
others have arbitrary codes, and f16 scales that are one of ordinary, negative, subnormal, the largest, zero and minus
zero. SCHEME.f32 is what the Python package `gguf` decodes from them. Both are little-endian. Needs numpy and gguf.
"""

import argparse
import ctypes
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

OUT = Path(__file__).resolve().parent.parent / "schemes"

# Where the f16 scales of a group lie.
F16_AT = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "IQ4_NL": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_XS": [0],
}
# Ordinary, negative, the smallest and another subnormal, the largest, zero and minus zero.
ODD_F16 = [0x2E66, 0xA123, 0x0001, 0x8234, 0x7BFF, 0x0000, 0x8000, 0x1C01]


def quantized(ggml, kind, values):
    group_len, group_bytes = GGML_QUANT_SIZES[kind]
    out = np.zeros(values.size // group_len * group_bytes, np.uint8)
    weight = np.ones(values.size, np.float32)
    pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)
    ggml.ggml_quantize_chunk(
        ctypes.c_int(int(kind)), pointer(values), pointer(out), ctypes.c_int64(0), ctypes.c_int64(1),
        ctypes.c_int64(values.size), pointer(weight),
    )
    return out.reshape(-1, group_bytes)


def arbitrary(rng, kind, count, f16_at):
    groups = rng.integers(0, 256, (count, GGML_QUANT_SIZES[kind][1]), np.uint8)
    for i, group in enumerate(groups):
        for j, at in enumerate(f16_at):
            bits = ODD_F16[(i + 3 * j) % len(ODD_F16)]
            group[at : at + 2] = np.frombuffer(np.uint16(bits).tobytes(), np.uint8)
    return groups


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--ggml", required=True)
    arguments.add_argument("--check", action="store_true", help="compare with what is there instead of writing")
    options = arguments.parse_args()
    ggml = ctypes.CDLL(options.ggml)
    OUT.mkdir(exist_ok=True)
    rng = np.random.default_rng(20_04)
    for name, f16_at in F16_AT.items():
        kind = GGMLQuantizationType[name]
        values = rng.standard_normal(8 * GGML_QUANT_SIZES[kind][0]).astype(np.float32) * 0.03
        values[rng.integers(0, values.size, 5)] *= 20
        coded, odd = quantized(ggml, kind, values), arbitrary(rng, kind, 8, f16_at)
        groups = np.concatenate([coded[: 8 if kind.name[-2:] in ("_0", "_1", "NL") else 4], odd])
        decoded = dequantize(groups, kind).astype("<f4")
        assert np.isfinite(decoded).all()
        for suffix, data in (("groups", groups.tobytes()), ("f32", decoded.tobytes())):
            path = OUT / f"{name.lower()}.{suffix}"
            if options.check:
                assert path.read_bytes() == data, f"{path} differs"
            else:
                path.write_bytes(data)
        error = np.abs(dequantize(coded, kind).ravel() - values).max() / np.abs(values).max()
        print(f"{name.lower()}: {len(groups)} groups; largest error of the coded half {error:.3f} of the largest value")


if __name__ == "__main__":
    main()
