"""Reference logits of a folder by Transformers: f32 arithmetic over the bf16 weights, f32 KV, eager attention.

Transformers' own bf16 logits are never used: they are rounded to 8 bits and tie or swap close candidates.
"""

import hashlib
import json
import platform
from pathlib import Path

import numpy as np
import safetensors
import torch
import transformers
from safetensors.torch import load_file

import f64


def nmse(x: np.ndarray, ref: np.ndarray) -> float:
    """sum (x - ref)^2 / sum ref^2, in f64."""
    x, ref = x.astype(np.float64), ref.astype(np.float64)
    return float(np.sum((x - ref) ** 2) / np.sum(ref**2))


def load(folder: Path) -> torch.nn.Module:
    """The model in f32, with proof that its weights are the file's bf16 values and that nothing was left random."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager")
    rotary = model.model.rotary_emb
    assert rotary.inv_freq.dtype == torch.float32, "frequencies rounded to bf16"
    model = model.float().eval()
    stored, live = load_file(folder / "model.safetensors"), dict(model.named_parameters())
    assert stored.keys() == live.keys(), stored.keys() ^ live.keys()
    for name, values in stored.items():
        assert torch.equal(live[name], values.float()), name
    frequencies, scale = f64.inverse_frequencies(json.loads((folder / "config.json").read_text()))
    assert np.allclose(rotary.inv_freq.numpy(), frequencies, rtol=5e-7, atol=0), "other frequencies than the formula's"
    assert abs(rotary.attention_scaling - scale) < 1e-12
    return model


def transformers_logits(folder: Path, ids: np.ndarray) -> np.ndarray:
    """[n_ids, vocab_size] f32, on one thread so that sums keep their order."""
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with torch.no_grad():
        return load(folder)(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].numpy()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def leads(logits: np.ndarray) -> list[float]:
    """Distance of each position's argmax from its runner-up, in logits."""
    top = np.partition(logits.astype(np.float64), -2, axis=1)[:, -2:]
    return [round(float(v), 6) for v in top[:, 1] - top[:, 0]]


def write_reference(folder: Path, name: str, why: str, all_logits: bool) -> dict:
    """logits.f32, perhaps logits-all.f32, and reference.json beside the model; returns what reference.json says."""
    ids = np.fromfile(folder / "tokens.u32", dtype="<u4")
    logits = transformers_logits(folder, ids)
    assert logits.dtype == np.float32 and np.isfinite(logits).all()
    logits[-1].astype("<f4").tofile(folder / "logits.f32")
    if all_logits:
        logits.astype("<f4").tofile(folder / "logits-all.f32")
    exact, f32_angles = f64.logits(folder, ids), f64.logits(folder, ids, f32_angles=True)
    files = sorted(p for p in folder.iterdir() if p.name != "reference.json")
    says = {
        "name": name,
        "why": why,
        "reference": "Transformers, eager attention, f32 arithmetic over the bf16 weights, f32 KV, one thread",
        "versions": {
            "python": platform.python_version(),
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "safetensors": safetensors.__version__,
            "numpy": np.__version__,
        },
        "positions": len(ids),
        "logits_shape": list(logits.shape),
        "sha256": {p.name: sha256(p) for p in files},
        "logit_deviation": round(float(logits.std()), 4),
        "nmse_against_f64": {
            "last": nmse(logits[-1], exact[-1]),
            "all": nmse(logits, exact),
            "all_with_f32_angles": nmse(logits, f32_angles),
            "argmax_differs": int((logits.argmax(1) != exact.argmax(1)).sum()),
        },
        "top_1": [int(i) for i in logits.argmax(1)],
        "lead": leads(logits),
    }
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in says.items()]
    (folder / "reference.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return says
