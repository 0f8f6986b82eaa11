"""The Qwen3 forward pass in f64, written from the formulas: a second opinion on the Transformers reference.

It shares no code with Transformers, so agreement shows that the reference was driven rightly; the distance that remains is
the rounding noise of f32, below which no gate can ask.
"""

import json
import math
from pathlib import Path

import numpy as np
from safetensors.torch import load_file


def inverse_frequencies(cfg: dict) -> tuple[np.ndarray, float]:
    """[head_dim / 2] radians a position, and the factor on sine and cosine. YaRN: arXiv 2309.00071, section 3.4."""
    rope = cfg.get("rope_parameters") or {"rope_theta": cfg["rope_theta"], **(cfg["rope_scaling"] or {})}
    dim, theta = cfg["head_dim"], rope["rope_theta"]
    plain = theta ** -(np.arange(0, dim, 2) / dim)
    if rope.get("rope_type", "default") == "default":
        return plain, 1.0
    assert rope["rope_type"] == "yarn"
    factor, original = rope["factor"], rope["original_max_position_embeddings"]

    def pair_that_turns(times: float) -> float:
        return dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_that_turns(32)), 0)
    high = min(math.ceil(pair_that_turns(1)), dim - 1)
    slowed = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    return plain * (1 - slowed) + plain / factor * slowed, 0.1 * math.log(factor) + 1


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x [positions, heads, head_dim]; the pair of i is i + head_dim / 2."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """q [n, heads, dim], k and v [n, kv heads, dim] -> [n, heads * dim]; causal."""
    n, heads, dim = q.shape
    out, group = np.empty_like(q), heads // k.shape[1]
    for h in range(heads):
        scores = q[:, h] @ k[:, h // group].T / math.sqrt(dim)
        scores[np.triu_indices(n, 1)] = -np.inf
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, h] = p @ v[:, h // group] / p.sum(axis=1, keepdims=True)
    return out.reshape(n, heads * dim)


def logits(folder: Path, ids: np.ndarray, f32_angles: bool = False) -> np.ndarray:
    """[n_ids, vocab_size] f64. `f32_angles`: round frequencies and angles to f32, as Transformers does."""
    cfg = json.loads((folder / "config.json").read_text())
    w = {name: t.double().numpy() for name, t in load_file(folder / "model.safetensors").items()}
    n, eps, dim = len(ids), cfg["rms_norm_eps"], cfg["head_dim"]
    frequencies, scale = inverse_frequencies(cfg)
    number = np.float32 if f32_angles else np.float64
    angles = np.arange(n, dtype=number)[:, None, None] * frequencies.astype(number)
    cos, sin = scale * np.cos(angles.astype(np.float64)), scale * np.sin(angles.astype(np.float64))
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(cfg["num_hidden_layers"]):
        m = lambda name: w[f"model.layers.{layer}.{name}.weight"]
        a = rms_norm(x, m("input_layernorm"), eps)
        heads = lambda name: (a @ m(f"self_attn.{name}_proj").T).reshape(n, -1, dim)
        q = rotate(rms_norm(heads("q"), m("self_attn.q_norm"), eps), cos, sin)
        k = rotate(rms_norm(heads("k"), m("self_attn.k_norm"), eps), cos, sin)
        x = x + attention(q, k, heads("v")) @ m("self_attn.o_proj").T
        a = rms_norm(x, m("post_attention_layernorm"), eps)
        gate = a @ m("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (a @ m("mlp.up_proj").T)) @ m("mlp.down_proj").T
    head = w["model.embed_tokens.weight"] if cfg["tie_word_embeddings"] else w["lm_head.weight"]
    return rms_norm(x, w["model.norm.weight"], eps) @ head.T
