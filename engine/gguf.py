"""Turns the GGUF file of the starter model into an ordinary mlx-lm model folder.

`python -m engine.gguf GGUF FOLDER q4|f32` does it in a process of its own: a process that has computed with mlx
must not fork, and a server forks.
"""

import sys
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx_lm.utils import dequantize_model, load_model, save_config, save_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

Metadata = dict[str, Any]

GROUP_SIZE = 32
CONTROL = 3  # a token_type of GGUF

# fmt: off
NAMES = {
    "token_embd":  "model.embed_tokens",
    "output_norm": "model.norm",
    "blk":         "model.layers",
    "attn_norm":   "input_layernorm",
    "attn_q":      "self_attn.q_proj",
    "attn_k":      "self_attn.k_proj",
    "attn_v":      "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm":    "post_attention_layernorm",
    "ffn_gate":    "mlp.gate_proj",
    "ffn_up":      "mlp.up_proj",
    "ffn_down":    "mlp.down_proj",
}

CONFIG = {
    "hidden_size":             "llama.embedding_length",
    "num_hidden_layers":       "llama.block_count",
    "intermediate_size":       "llama.feed_forward_length",
    "num_attention_heads":     "llama.attention.head_count",
    "num_key_value_heads":     "llama.attention.head_count_kv",
    "rms_norm_eps":            "llama.attention.layer_norm_rms_epsilon",
    "rope_theta":              "llama.rope.freq_base",
    "max_position_embeddings": "llama.context_length",
    "vocab_size":              "llama.vocab_size",
    "bos_token_id":            "tokenizer.ggml.bos_token_id",
    "eos_token_id":            "tokenizer.ggml.eos_token_id",
    "pad_token_id":            "tokenizer.ggml.padding_token_id",
}

NAMED_TOKENS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
}
# fmt: on


def convert(gguf: Path, folder: Path, weights: str) -> None:
    """Write the folder with the GGUF's own 4 bits (`q4`), or dequantised to float32 (`f32`)."""
    arrays, metadata = cast("tuple[dict[str, mx.array], Metadata]", mx.load(str(gguf), return_metadata=True))
    to_tokenizer(metadata).save_pretrained(folder)
    config = to_config(metadata)
    named = {to_name(name): array for name, array in arrays.items()}
    if weights == "q4":
        save(folder, to_half(named), config)
    else:
        save(folder, named, config)
        dequantize(folder)


def save(folder: Path, arrays: dict[str, mx.array], config: dict[str, Any]) -> None:
    """Write the two files that make a folder a model of mlx-lm."""
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, metadata={"format": "mlx"})
    save_config(config, folder / "config.json")


def dequantize(folder: Path) -> None:
    """Replace the folder's packed weights by float32 ones."""
    model, config = load_model(folder)
    model.set_dtype(mx.float32)  # first, for float16 scales would round the weights to float16
    save_model(folder, dequantize_model(model))
    del config["quantization"], config["quantization_config"]
    save_config(config, folder / "config.json")


def to_half(arrays: dict[str, mx.array]) -> dict[str, mx.array]:
    """Bring the norms down to the scales' float16; one float32 array would widen all that follows on a GPU."""
    # Activations stay below 28,000 of float16's 65,504, and bfloat16 is eight times as far from float32's answer.
    wide = {name: array.astype(mx.float16) for name, array in arrays.items() if array.dtype == mx.float32}
    return arrays | wide


def to_name(name: str) -> str:
    """Name a GGUF tensor as mlx-lm's llama names it."""
    return ".".join(NAMES.get(part, part) for part in name.split("."))


def to_config(metadata: Metadata) -> dict[str, Any]:
    """Map GGUF's metadata to the config.json of a llama."""
    known = {ours: metadata[theirs].item() for ours, theirs in CONFIG.items()}
    return known | {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "tie_word_embeddings": True,
        "rope_traditional": True,  # GGUF stores the rows of q and k permuted
        "quantization": {
            "group_size": GROUP_SIZE,
            "bits": 4,
            "model.embed_tokens": {"group_size": GROUP_SIZE, "bits": 8},
        },
    }


def to_tokenizer(metadata: Metadata) -> PreTrainedTokenizerFast:
    """Map GGUF's metadata to a tokenizer with its chat template."""
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata["tokenizer.ggml.token_type"].tolist()
    specials = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    named = {name: tokens[metadata[key].item()] for name, key in NAMED_TOKENS.items()}
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        chat_template=metadata["tokenizer.chat_template"],
        model_max_length=metadata["llama.context_length"].item(),
        clean_up_tokenization_spaces=False,
        **named,
    )


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
