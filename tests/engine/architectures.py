"""Tiny models of several architectures, told apart by what their caches can do, with random weights."""

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import falcon_h1, gemma3_text, llama, llama4, mamba2, qwen3_next, recurrent_gemma

from tests.engine.tiny import END, THINK

# fmt: off
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": END + 1 + len(THINK)}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1, "shared_expert_intermediate_size": 32,
       "mlp_only_layers": [], "moe_intermediate_size": 32}
WINDOW = 24

ARCHITECTURES = {
    "llama":            # can be cut anywhere
        (llama, SIZES | HEADS | {"rms_norm_eps": 1e-5, "tie_word_embeddings": False}),
    "gemma3":           # rotating layers, which can be cut only below their window
        (gemma3_text, SIZES | HEADS | {"query_pre_attn_scalar": 16, "sliding_window": WINDOW,
         "sliding_window_pattern": 2}),
    "mamba2":           # states, which cannot be cut at all
        (mamba2, SIZES | {"num_heads": 4, "head_dim": 16, "intermediate_size": 64, "state_size": 16, "n_groups": 1,
         "conv_kernel": 4, "layer_norm_epsilon": 1e-5, "use_bias": False, "use_conv_bias": True,
         "tie_word_embeddings": False, "time_step_limit": (0.0, float("inf")), "time_step_rank": "auto"}),
    "qwen3_next":       # some layers can be cut, some cannot
        (qwen3_next, SIZES | HEADS | MOE | {"linear_num_value_heads": 4, "linear_num_key_heads": 2,
         "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "max_position_embeddings": 4096,
         "full_attention_interval": 2}),
    "recurrent_gemma":  # neither: states and rotating layers
        (recurrent_gemma, SIZES | HEADS | {"num_hidden_layers": 3, "attention_bias": False, "conv1d_width": 4,
         "logits_soft_cap": 30.0, "num_key_value_heads": 1, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "attention_window_size": WINDOW, "block_types": ["recurrent", "recurrent", "attention"]}),
    "falcon_h1":        # two caches a layer
        (falcon_h1, SIZES | HEADS | {"mamba_d_head": 16, "mamba_d_ssm": 64, "mamba_d_state": 16, "mamba_n_heads": 4}),
    "llama4":           # caches that cannot be merged into a batch
        (llama4, {"text_config": SIZES | HEADS | {"num_hidden_layers": 4, "attention_bias": False,
         "attention_chunk_size": WINDOW, "interleave_moe_layer_step": 2, "intermediate_size": 64,
         "intermediate_size_mlp": 128, "max_position_embeddings": 4096, "model_type": "llama4_text",
         "num_experts_per_tok": 1, "num_local_experts": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "use_qk_norm": True, "attn_temperature_tuning": 4, "floor_scale": 8192, "attn_scale": 0.1,
         "rope_scaling": None}}),
}
# fmt: on


def make_model(name, dtype=mx.float32):
    """Make a model; its weights are so large that no two of its tokens are alike for long."""
    module, settings = ARCHITECTURES[name]
    args = {key: value for key, value in settings.items() if key in module.ModelArgs.__annotations__}
    mx.random.seed(0)
    model = module.Model(module.ModelArgs(model_type=name, **args))
    model.update(tree_map(lambda weight: (weight * 3 if weight.ndim > 1 else weight).astype(dtype), model.parameters()))
    mx.eval(model.parameters())
    return model
