"""The official Python client of Anthropic's interface: `anthropic_client.py URL URL_OF_A_FULL_SERVER ITS_KEY`."""

import json
import sys
from typing import Literal

import anthropic
from anthropic import Anthropic
from pydantic import BaseModel

import checks
from checks import refused, same

url, full_url, key = sys.argv[1:]
client = Anthropic(base_url=url, api_key="none", max_retries=0)
MODEL = "kipp-tiny"
HELLO = [{"role": "user", "content": "Tell me a story about a dog."}]
WEATHER = {
    "name": "weather",
    "description": "The weather of a place",
    "input_schema": {
        "type": "object",
        "properties": {"place": {"enum": ["here", "there"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["place", "days"],
        "additionalProperties": False,
    },
}
FIELDS = {"model": MODEL, "messages": HELLO, "max_tokens": 40, "extra_body": {"temperature": 0}}


def a_message_answers():
    message = client.messages.create(**FIELDS, system="Be brief.")
    same((message.type, message.role, message.content[0].type), ("message", "assistant", "text"))
    assert message.content[0].text.strip(), message
    assert message.stop_reason in ("end_turn", "max_tokens"), message
    assert 0 < message.usage.output_tokens <= 40, message


def thinking_comes_as_a_block():
    message = client.messages.create(
        **FIELDS | {"max_tokens": 1500}, thinking={"type": "enabled", "budget_tokens": 1024}
    )
    same([block.type for block in message.content], ["thinking", "text"])


def a_streamed_message_is_the_whole_one():
    whole = client.messages.create(**FIELDS)
    with client.messages.stream(**FIELDS) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    same(text, whole.content[0].text)
    same((final.content[0].text, final.stop_reason), (text, whole.stop_reason))
    same(final.usage.output_tokens, whole.usage.output_tokens)


def a_tool_is_used():
    # A small model goes on calling as long as it may.
    one = {"disable_parallel_tool_use": True}
    for choice in [{"type": "any"} | one, {"type": "tool", "name": "weather"} | one]:
        message = client.messages.create(**FIELDS | {"max_tokens": 300}, tools=[WEATHER], tool_choice=choice)
        same(message.stop_reason, "tool_use")
        use = [block for block in message.content if block.type == "tool_use"][0]
        same((use.name, set(use.input)), ("weather", {"place", "days"}))
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
    history = [*HELLO, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    assert client.messages.create(**FIELDS | {"messages": history}, tools=[WEATHER]).content


def a_streamed_tool_has_its_input():
    fields = FIELDS | {"max_tokens": 300}
    choice = {"type": "any", "disable_parallel_tool_use": True}
    with client.messages.stream(**fields, tools=[WEATHER], tool_choice=choice) as stream:
        partial = "".join(event.partial_json for event in stream if event.type == "input_json")
        final = stream.get_final_message()
    use = [block for block in final.content if block.type == "tool_use"][0]
    same((use.input, set(use.input)), (json.loads(partial), {"place", "days"}))


class Pet(BaseModel):
    kind: Literal["cat", "dog", "bird"]
    tame: bool


def a_schema_is_parsed_into_a_model():
    message = client.messages.parse(**FIELDS | {"max_tokens": 300}, output_format=Pet)
    assert isinstance(message.parsed_output, Pet), message


def tokens_are_counted_as_they_are_used():
    count = client.messages.count_tokens(model=MODEL, messages=HELLO, system="Be brief.")
    usage = client.messages.create(**FIELDS, system="Be brief.").usage
    same(count.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)


def errors_have_their_classes():
    create = client.messages.create
    refused(anthropic.BadRequestError, 400, lambda: create(**FIELDS | {"extra_body": {"temperature": -1}}))
    refused(anthropic.NotFoundError, 404, lambda: create(**FIELDS | {"model": "another"}))
    keyless = Anthropic(base_url=full_url, api_key="wrong", max_retries=0)
    refused(anthropic.AuthenticationError, 401, lambda: keyless.messages.create(**FIELDS))
    full = Anthropic(base_url=full_url, api_key=key, max_retries=0)
    refused(anthropic.RateLimitError, 429, lambda: full.messages.create(**FIELDS))


checks.run([
    a_message_answers,
    thinking_comes_as_a_block,
    a_streamed_message_is_the_whole_one,
    a_tool_is_used,
    a_streamed_tool_has_its_input,
    a_schema_is_parsed_into_a_model,
    tokens_are_counted_as_they_are_used,
    errors_have_their_classes,
])
