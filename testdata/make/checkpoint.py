"""Write a Hugging Face folder of the Qwen3 architecture with random bf16 weights, the same bytes for the same shape.

For tests of shapes that no published checkpoint has. What such a model says is noise; its arithmetic is what is tested.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file


@dataclass(frozen=True)
class Shape:
    """One random checkpoint. Dimensions bear the names of the model card."""

    name: str
    why: str
    seed: int
    n_ids: int
    hidden_size: int
    intermediate_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_layers: int
    vocab_size: int
    tied: bool
    max_position_embeddings: int = 512
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6
    deviation: float = 0.06
    """Standard deviation of the matrices: wide enough that layers outweigh the embedding and logits spread."""
    rope: dict = field(default_factory=dict)
    """Keys that replace `rope_theta` and `rope_scaling` in config.json, for the several ways folders spell them."""
    all_logits: bool = False
    """Store the logits of every position too (small vocabularies only)."""


def tensor_shapes(s: Shape) -> dict[str, tuple[int, ...]]:
    """Names and shapes [rows, columns] of all tensors; a tensor of one dimension is a norm."""
    query, kv = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim
    shapes = {"model.embed_tokens.weight": (s.vocab_size, s.hidden_size)}
    for layer in range(s.n_layers):
        shapes |= {
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (s.hidden_size,),
                "self_attn.q_proj": (query, s.hidden_size),
                "self_attn.k_proj": (kv, s.hidden_size),
                "self_attn.v_proj": (kv, s.hidden_size),
                "self_attn.q_norm": (s.head_dim,),
                "self_attn.k_norm": (s.head_dim,),
                "self_attn.o_proj": (s.hidden_size, query),
                "post_attention_layernorm": (s.hidden_size,),
                "mlp.gate_proj": (s.intermediate_size, s.hidden_size),
                "mlp.up_proj": (s.intermediate_size, s.hidden_size),
                "mlp.down_proj": (s.hidden_size, s.intermediate_size),
            }.items()
        }
    shapes["model.norm.weight"] = (s.hidden_size,)
    if not s.tied:
        shapes["lm_head.weight"] = (s.vocab_size, s.hidden_size)
    return shapes


def random_weights(s: Shape) -> dict[str, torch.Tensor]:
    """bf16 tensors by name. Each tensor has its own random stream, so that adding one does not change the others."""
    weights = {}
    for index, (name, shape) in enumerate(tensor_shapes(s).items()):
        stream = np.random.Generator(np.random.PCG64([s.seed, index]))
        values = stream.standard_normal(shape)
        # Norm weights lie around 1 and differ enough that one read from the wrong place shows.
        values = 1 + 0.2 * values if len(shape) == 1 else s.deviation * values
        weights[name] = torch.from_numpy(values).to(torch.bfloat16)
    return weights


def random_ids(s: Shape) -> np.ndarray:
    """`n_ids` ids as little-endian u32; the first and last row of the embedding are always among them."""
    stream = np.random.Generator(np.random.PCG64([s.seed, 1 << 20]))
    ids = stream.integers(0, s.vocab_size, s.n_ids).astype("<u4")
    ids[1], ids[2] = s.vocab_size - 1, 0
    return ids


def config(s: Shape) -> dict:
    rope = s.rope or {"rope_theta": s.rope_theta, "rope_scaling": None}
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "head_dim": s.head_dim,
        "hidden_act": "silu",
        "hidden_size": s.hidden_size,
        "intermediate_size": s.intermediate_size,
        "max_position_embeddings": s.max_position_embeddings,
        "num_attention_heads": s.n_heads,
        "num_hidden_layers": s.n_layers,
        "num_key_value_heads": s.n_kv_heads,
        "rms_norm_eps": s.rms_norm_eps,
        **rope,
        "tie_word_embeddings": s.tied,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "vocab_size": s.vocab_size,
    }


def write_folder(s: Shape, folder: Path) -> None:
    """config.json, model.safetensors and tokens.u32."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(s), indent=2) + "\n")
    save_file(random_weights(s), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "tokens.u32").write_bytes(random_ids(s).tobytes())
