"""What a request holds the answer to, and the field at fault where it cannot."""

import msgspec
import pytest

from engine.errors import GrammarError
from engine.pieces import Constraint
from handlers.mapping.to_constraint import to_constraint, to_format, to_grammar_fault, to_told
from handlers.mapping.to_struct import FieldError
from handlers.mapping.to_tools import to_toolbox
from handlers.wire.request import CreateResponse

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
LOOSE = {"type": "function", "name": "loose", "parameters": SCHEMA}
STRICT = {"type": "function", "name": "strict", "parameters": SCHEMA, "strict": True}
SAY = {"type": "custom", "name": "say"}
LARK = {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}
PATCH = {"type": "custom", "name": "patch", "format": LARK}
FORMAT = {"type": "json_schema", "name": "count", "schema": SCHEMA}
ONLY_LOOSE = {"type": "allowed_tools", "tools": [{"type": "function", "name": "loose"}]}


def request_of(**body):
    form = body.pop("format", None)
    return msgspec.convert(body | ({"text": {"format": form}} if form else {}), CreateResponse)


def constraint(**body):
    request = request_of(**body)
    return to_constraint(request, to_toolbox(request))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tools": [LOOSE, SAY]},
        {"tools": [LOOSE], "tool_choice": "auto", "parallel_tool_calls": True},
        {"tools": [STRICT], "tool_choice": "none"},
        {"parallel_tool_calls": False},
        {"format": {"type": "text"}},
    ],
)
def test_what_asks_for_nothing_is_not_held_to_anything(body):
    assert constraint(**body) is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"format": FORMAT}, {"schema": SCHEMA, "is_lenient": True}),
        ({"format": {**FORMAT, "strict": True}}, {"schema": SCHEMA}),
        ({"format": {"type": "json_object"}}, {"schema": {"type": "object"}, "is_lenient": True}),
        ({"tools": [STRICT]}, {"may_call": ("strict",)}),
        ({"tools": [PATCH]}, {"may_call": ("patch",)}),
        ({"tools": [LOOSE, STRICT]}, {"may_call": ("loose", "strict"), "lenient": {"loose"}}),
        ({"tools": [LOOSE], "tool_choice": "required"},
         {"may_call": ("loose",), "must_call": True, "lenient": {"loose"}}),
        ({"tools": [LOOSE, STRICT], "tool_choice": {"type": "function", "name": "strict"}},
         {"may_call": ("strict",), "must_call": True}),
        ({"tools": [LOOSE, STRICT], "tool_choice": ONLY_LOOSE}, {"may_call": ("loose",), "lenient": {"loose"}}),
        ({"tools": [LOOSE], "parallel_tool_calls": False},
         {"may_call": ("loose",), "only_one": True, "lenient": {"loose"}}),
    ],
)  # fmt: skip
def test_what_is_asked_is_held_to(body, expected):
    lenient = frozenset(expected.pop("lenient", ()))
    expected = {"is_lenient": "format" not in body} | expected

    assert constraint(**body) == Constraint(**expected, lenient=lenient)


@pytest.mark.parametrize("missing", ["name", "schema"])
def test_a_schema_has_a_name_and_itself(missing):
    with pytest.raises(FieldError) as caught:
        to_format(request_of(format={key: value for key, value in FORMAT.items() if key != missing}))

    assert caught.value.param == f"text.format.{missing}"


def test_the_model_is_told_of_the_format():
    assert to_told(to_format(request_of())) == ""
    assert "JSON object" in to_told(to_format(request_of(format={"type": "json_object"})))
    told = to_told(to_format(request_of(format={**FORMAT, "description": "How many."})))
    assert "count: How many." in told
    assert msgspec.json.encode(SCHEMA).decode() in told


@pytest.mark.parametrize(
    ("tool", "fault"),
    [
        (None, ("schema_invalid", "text.format.schema")),
        ("loose", ("schema_invalid", "tools[0].parameters")),
        ("space__strict", ("schema_invalid", "tools[1].tools[0].parameters")),
        ("patch", ("definition_invalid", "tools[2].format.definition")),
    ],
)
def test_a_fault_is_at_the_path_of_its_schema(tool, fault):
    tools = [LOOSE, {"type": "namespace", "name": "space", "tools": [STRICT]}, PATCH]
    request = request_of(tools=tools, format=FORMAT)
    toolbox = to_toolbox(request)

    event, facts = to_grammar_fault(GrammarError("no", tool), toolbox, to_constraint(request, toolbox))

    assert (event, facts) == (fault[0], {"param": fault[1], "reason": "no"})


def test_a_fault_of_all_tools_together_is_theirs():
    request = request_of(tools=[STRICT])
    toolbox = to_toolbox(request)

    _, facts = to_grammar_fault(GrammarError("too large"), toolbox, to_constraint(request, toolbox))

    assert facts["param"] == "tools"
