"""The part of config.json that the forward pass and the export read."""

import dataclasses
import json
import pathlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Field names are those of config.json."""
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_hash_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    sliding_window: int
    compress_ratios: tuple[int, ...]  # one a layer, the last one for the MTP block
    rope_theta: float
    compress_rope_theta: float
    rope_scaling: dict
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    n_routed_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    routed_scaling_factor: float
    swiglu_limit: float
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    rms_norm_eps: float

    @classmethod
    def read(cls, path: pathlib.Path) -> "Config":
        content = json.loads(path.read_text())
        names = [field.name for field in dataclasses.fields(cls)]
        if missing := [name for name in names if name not in content]:
            raise ValueError(f"{path}: no {', '.join(missing)}")
        config = cls(**{name: content[name] for name in names})
        if len(config.compress_ratios) != config.num_hidden_layers + 1:
            raise ValueError(f"{path}: compress_ratios needs {config.num_hidden_layers + 1} entries, "
                             "one a layer and one for the MTP block")
        return config
