"""Tiny tokenizers, a token a byte, and tiny random llamas."""

import mlx.core as mx
from mlx_lm import tokenizer_utils
from mlx_lm.models import llama
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, TokenizerWrapper
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'narrator' %}{{ raise_exception('No narrator.\nNone.') }}{% endif %}"
    "<s>{{ message.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>{% endif %}"
)
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
START, END = len(BYTES), len(BYTES) + 1
THINK = ("<think>", "</think>")
# What mlx-lm recognises JSON tool calls by.
JSON_TOOLS = TEMPLATE + "{{ tools | tojson if tools }}{# <tool_call>{'name': tool_call.name}</tool_call> #}"


def make_fast_tokenizer(template=TEMPLATE, markers=(), **limits):
    """A token a byte, two special ones, and one for each marker."""
    tokenizer = Tokenizer(models.BPE(vocab={char: n for n, char in enumerate(BYTES)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", *markers])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **limits)


def make_tokenizer(template=TEMPLATE, **limits):
    return TokenizerWrapper(make_fast_tokenizer(template, **limits), BPEStreamingDetokenizer, eos_token_ids=[END])


def load_tokenizer(folder, template=JSON_TOOLS, markers=THINK):
    """Save a tokenizer and let mlx-lm load it, with all that it finds out by itself."""
    make_fast_tokenizer(template, markers).save_pretrained(folder)
    return tokenizer_utils.load(folder, eos_token_ids=[END])


def tokens_of(text):
    return make_tokenizer().encode(text, add_special_tokens=False)


class Watched(llama.Model):
    """A random tiny llama that tells of each call before it computes it."""

    def __init__(self, before_call=lambda _: None, **args):
        mx.random.seed(0)
        shape = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": END + 1}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        super().__init__(llama.ModelArgs(model_type="llama", rms_norm_eps=1e-5, **(shape | heads | args)))
        self.calls = 0
        self.before_call = before_call

    def __call__(self, inputs, **kwargs):
        self.calls += 1
        self.before_call(self.calls)
        return super().__call__(inputs, **kwargs)


class Reciting(Watched):
    """Follows each token by the one that follows it in `tokens`, and then by the end of the sequence."""

    def __init__(self, tokens):
        super().__init__()
        after = dict(zip(tokens, [*tokens[1:], END], strict=True))
        self.after = mx.array([after.get(token, END) for token in range(END + 1)])

    def __call__(self, inputs, **kwargs):
        super().__call__(inputs, **kwargs)
        return mx.where(mx.arange(END + 1) == self.after[inputs][..., None], 0.0, -100.0)


class Dictating(Watched):
    """Answers a prompt of `prompt_length` tokens by `tokens`, and then by the end of the sequence."""

    def __init__(self, tokens, prompt_length, **args):
        super().__init__(**args)
        self.answer = mx.array([*[END] * (prompt_length - 1), *tokens, END])

    def __call__(self, inputs, cache, **kwargs):
        seen = mx.array(cache[0].offset).reshape(-1, 1)
        logits = super().__call__(inputs, cache=cache, **kwargs)
        places = mx.clip(seen + mx.arange(inputs.shape[1]), 0, self.answer.size - 1)
        return mx.where(mx.arange(logits.shape[-1]) == self.answer[places][..., None], 0.0, -100.0)
