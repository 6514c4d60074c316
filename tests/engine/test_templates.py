import pytest

from engine.errors import TemplateError
from engine.templates import to_prompt, to_switches, variables
from tests.engine.tiny import THINK, load_tokenizer

MESSAGES = [{"role": "user", "content": "Hi"}]
FLAG = "{% if enable_thinking is not defined or enable_thinking %}Think!{% endif %}"
WORD = "{% set effort = reasoning_effort or 'medium' %}Effort: {{ effort }}"
SAYS = "{% for message in messages %}{{ message.content }}{% endfor %}"
LOOP = "{% for message in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ message.content }}{% endfor %}"
SKIP = "{% for _ in [1] %}{% if false %}{% continue %}{% endif %}{% endfor %}"
GENERATION = (
    "{% for message in messages %}{% generation %}{{ message.content }}{{ thinking }}{% endgeneration %}{% endfor %}"
)


@pytest.fixture
def templated(tmp_path):
    def templated(template, effort=None, markers=THINK, tools=None):
        tokenizer = load_tokenizer(tmp_path, template, markers)
        return tokenizer.decode(to_prompt(tokenizer, MESSAGES, tools, effort))

    return templated


@pytest.mark.parametrize(
    ("effort", "said"),
    [("none", "Hi"), ("minimal", "HiThink!"), ("low", "HiThink!"), ("max", "HiThink!"), (None, "HiThink!")],
)
def test_an_effort_switches_thinking_where_the_template_has_a_flag(templated, effort, said):
    assert templated(SAYS + FLAG, effort) == said


@pytest.mark.parametrize("effort", ["none", "high"])
def test_the_other_name_of_the_flag_is_known_too(templated, effort):
    assert templated(SAYS + "{{ thinking }}", effort) == f"Hi{effort != 'none'}"


@pytest.mark.parametrize(
    ("effort", "word"),
    [(None, "medium"), ("none", "low"), ("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high"),
     ("xhigh", "high"), ("max", "high"), ("odd", "odd")],
)  # fmt: skip
def test_an_effort_is_put_into_words_that_templates_know(templated, effort, word):
    assert templated(SAYS + WORD, effort) == f"HiEffort: {word}"


def test_a_template_without_a_switch_ignores_the_effort(templated):
    assert templated(SAYS, "high") == "Hi"


@pytest.mark.parametrize("template", [LOOP + FLAG, SKIP + SAYS + FLAG])
def test_templates_may_break_and_continue(templated, template):
    assert templated(template, "none") == "Hi"
    assert "enable_thinking" in variables(template)


def test_templates_may_mark_what_was_generated(templated):
    assert variables(GENERATION) == {"messages", "thinking"}
    assert templated(GENERATION, "none") == "HiFalse"


@pytest.mark.parametrize("template", ["{% nonsense %}", "{{ unclosed", "None", "", "{% generation %} never closed"])
def test_what_is_no_template_has_no_switches(template):
    assert variables(template) == frozenset()


def test_a_tokenizer_may_render_without_a_template_text():
    class Renderer:
        chat_template = None

    assert to_switches(Renderer(), "high") == {}


def test_a_tokenizer_may_have_several_templates():
    class Named:
        chat_template = {"default": SAYS + WORD, "tool_use": SAYS + FLAG}  # noqa: RUF012

    assert to_switches(Named(), "none") == {"enable_thinking": False, "reasoning_effort": "low"}


def test_a_template_that_trips_refuses_in_one_line(tmp_path):
    tokenizer = load_tokenizer(tmp_path, SAYS + "{{ messages[7].content }}{{ raise_exception('No.\nNever.') }}")

    with pytest.raises(TemplateError) as caught:
        to_prompt(tokenizer, MESSAGES, None, "high")

    assert "\n" not in str(caught.value)
    assert str(caught.value)
