#!/usr/bin/env python3
"""Make testdata/odd: random Qwen3 checkpoints of odd shapes and their reference logits.

    odd.py             write all folders
    odd.py --check     write them elsewhere and compare every byte with what is here
    odd.py NAME...     only these

Needs torch, transformers, safetensors and numpy; versions are in each reference.json.
"""

import argparse
import filecmp
import sys
import tempfile
from pathlib import Path

import numpy as np

from checkpoint import Shape, write_folder
from reference import nmse, write_reference

HERE = Path(__file__).resolve().parent.parent / "odd"

SHAPES = [
    Shape(
        name="untied-10-over-2",
        why="10 heads over 2 (groups of 5), head_dim 32, hidden 160 with ffn 416, head of its own, vocabulary 257, rms eps 1e-5",
        seed=101, n_ids=133, hidden_size=160, intermediate_size=416, n_heads=10, n_kv_heads=2, head_dim=32, n_layers=2,
        vocab_size=257, tied=False, rms_norm_eps=1e-5, all_logits=True,
    ),
    Shape(
        name="tied-5-over-1",
        why="5 heads over 1, head_dim 96 (attention width 480 over hidden 96), three layers, vocabulary 1,003, "
        "hidden a multiple of 32 but not of 64: q8_0 fits, super-blocks of 256 do not",
        seed=102, n_ids=200, hidden_size=96, intermediate_size=224, n_heads=5, n_kv_heads=1, head_dim=96, n_layers=3,
        vocab_size=1003, tied=True, deviation=0.08,
    ),
    Shape(
        name="one-layer",
        why="one layer, as many KV heads as heads, head_dim 128, head of its own, vocabulary 1,003, rope theta 1e4",
        seed=103, n_ids=71, hidden_size=128, intermediate_size=352, n_heads=3, n_kv_heads=3, head_dim=128, n_layers=1,
        vocab_size=1003, tied=False, rope_theta=1e4,
    ),
    Shape(
        name="no-group-of-32",
        why="hidden 72 and ffn 200 are no multiples of 32: only attn_output (256 columns) can take a coded scheme; odd tails elsewhere",
        seed=104, n_ids=97, hidden_size=72, intermediate_size=200, n_heads=4, n_kv_heads=2, head_dim=64, n_layers=2,
        vocab_size=301, tied=True, deviation=0.08, all_logits=True,
    ),
    Shape(
        name="yarn",
        why="YaRN spelt as Qwen's cards do (rope_scaling): factor 4 over 64, 230 positions; max_position_embeddings stays below "
        "the stretched context of 256, as it does when a card's lines are added to a published config.json",
        seed=105, n_ids=230, hidden_size=64, intermediate_size=160, n_heads=6, n_kv_heads=2, head_dim=64, n_layers=2,
        vocab_size=515, tied=True, max_position_embeddings=80, deviation=0.08,
        rope={"rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
    ),
    Shape(
        name="yarn-parameters",
        why="YaRN spelt as newer folders do (rope_parameters, theta inside); factor 2 over 512, theta 1e4, so that some pairs "
        "keep their frequency, some are slowed in part and some in full; 733 positions",
        seed=106, n_ids=733, hidden_size=64, intermediate_size=96, n_heads=2, n_kv_heads=1, head_dim=64, n_layers=2,
        vocab_size=259, tied=True, max_position_embeddings=1024, deviation=0.08,
        rope={"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 512}},
    ),
    Shape(
        name="long",
        why="context 40,960 and 4,229 positions, past 4,096, rope theta 5e6: long tables, many KV blocks, spans of attention",
        seed=107, n_ids=4229, hidden_size=64, intermediate_size=160, n_heads=2, n_kv_heads=1, head_dim=64, n_layers=2,
        vocab_size=512, tied=True, max_position_embeddings=40960, rope_theta=5e6, deviation=0.08,
    ),
]  # fmt: skip


def make(shape: Shape, root: Path) -> Path:
    folder = root / shape.name
    write_folder(shape, folder)
    says = write_reference(folder, shape.name, shape.why, shape.all_logits)
    noise = says["nmse_against_f64"]
    size = sum(p.stat().st_size for p in folder.iterdir())
    print(
        f"{shape.name:18} {size:8} B  deviation {says['logit_deviation']:.2f}  f32 noise last {noise['last']:.1e} "
        f"all {noise['all']:.1e} (f32 angles {noise['all_with_f32_angles']:.1e})  argmax differs {noise['argmax_differs']}  "
        f"least lead {min(says['lead']):.1e}"
    )
    return folder


def distance(new: Path, kept: Path) -> str:
    """How far two files of logits lie apart; nothing for other files."""
    if new.suffix != ".f32" or not new.exists() or not kept.exists():
        return ""
    return f"  NMSE {nmse(np.fromfile(new, '<f4'), np.fromfile(kept, '<f4')):.1e}"


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("names", nargs="*")
    args.add_argument("--check", action="store_true")
    args = args.parse_args()
    chosen = [s for s in SHAPES if not args.names or s.name in args.names]
    if not args.check:
        for shape in chosen:
            make(shape, HERE)
        return 0
    differing = []
    with tempfile.TemporaryDirectory() as root:
        for shape in chosen:
            folder, kept = make(shape, Path(root)), HERE / shape.name
            names = sorted({p.name for p in folder.iterdir()} | {p.name for p in kept.iterdir()})
            same, other, missing = filecmp.cmpfiles(folder, kept, names, shallow=False)
            differing += [f"{shape.name}/{name}{distance(folder / name, kept / name)}" for name in other + missing]
    print("\n  ".join(["differs:", *differing]) if differing else "every byte is the same")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
