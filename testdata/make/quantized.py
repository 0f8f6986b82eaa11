#!/usr/bin/env python3
"""Make testdata/quantized: kipp-tiny as llama.cpp's own quantizer codes it, and llama.cpp's choices over fixed ids.

    quantized.py --llama DIR --logits PROGRAM [--source kipp-tiny.gguf]

DIR holds llama.cpp's programs; PROGRAM is llama_logits.cpp, built. Standard library and numpy only.
"""

import argparse
import hashlib
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "testdata/quantized"
IDS = ROOT / "testdata/kipp-tiny/sampled.u32"
POSITIONS = 64
SCHEMES = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k_m", "q4_k_m", "q5_k_s", "iq4_nl", "iq4_xs")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def llama_logits(program: Path, model: Path, count: int, window: int) -> np.ndarray:
    """[count, vocabulary] f32 over the first `count` ids, in windows of `window`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "logits.f32"
        subprocess.run([program, model, IDS, out, str(count), str(window)], check=True)
        return np.fromfile(out, "<f4").reshape(count, -1)


def write_top(scheme: str, model: Path, build: str, logits: np.ndarray) -> None:
    """Per position: the argmax, the runner-up and the distance between them, in logits."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :2]
    best = np.take_along_axis(logits.astype(np.float64), order, axis=1)
    says = {
        "scheme": scheme,
        "model_sha256": sha256(model),
        "reference": f"llama.cpp {build}, CPU with AVX-512, its defaults (f16 KV), one batch of {POSITIONS}",
        "ids": f"the first {POSITIONS} of testdata/kipp-tiny/sampled.u32",
        "argmax": order[:, 0].tolist(),
        "runner_up": order[:, 1].tolist(),
        "lead": [round(float(v), 5) for v in best[:, 0] - best[:, 1]],
    }
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in says.items()]
    (OUT / f"{scheme}-top.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--llama", type=Path, required=True)
    args.add_argument("--logits", type=Path, required=True)
    args.add_argument("--source", type=Path, default=ROOT / "models/kipp-tiny/kipp-tiny.gguf")
    args.add_argument("--build", default="0c1e57098", help="llama.cpp's commit, for the record")
    args = args.parse_args()
    OUT.mkdir(exist_ok=True)
    models = {"bf16": args.source}
    for scheme in SCHEMES:
        models[scheme] = OUT / f"kipp-tiny-{scheme}.gguf"
        command = [args.llama / "llama-quantize", args.source, models[scheme], scheme.upper()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for scheme, model in models.items():
        write_top(scheme, model, args.build, llama_logits(args.logits, model, POSITIONS, POSITIONS))
        print(f"{scheme}  {model.stat().st_size} B  {sha256(model)}")


if __name__ == "__main__":
    main()
