"""The official Python client of OpenAI's interface: `openai_client.py URL URL_OF_A_FULL_SERVER ITS_KEY`."""

import json
import sys
from typing import Literal

import openai
from openai import OpenAI
from pydantic import BaseModel, Field

import checks
from checks import refused, same

url, full_url, key = sys.argv[1:]
client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
MODEL = client.models.list().data[0].id
HELLO = [{"role": "user", "content": "Tell me a story about a dog."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place",
        "parameters": {
            "type": "object",
            "properties": {"place": {"enum": ["here", "there"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["place", "days"],
            "additionalProperties": False,
        },
    },
}


def chat(**fields):
    fields = {"model": MODEL, "messages": HELLO, "max_tokens": 40, "seed": 1, "temperature": 0} | fields
    return client.chat.completions.create(**fields)


def models_are_listed_and_found():
    same(client.models.retrieve(MODEL).owned_by, "kipp")


def a_completion_has_text_and_usage():
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=12, temperature=0)
    assert answer.choices[0].text.strip(), answer
    same(answer.choices[0].finish_reason, "length")
    same(answer.usage.completion_tokens, 12)
    same(answer.usage.total_tokens, answer.usage.prompt_tokens + 12)


def completions_take_lists_and_ids_and_several_choices():
    answer = client.completions.create(
        model=MODEL, prompt=["Once upon", "The dog"], n=2, max_tokens=4, seed=7, temperature=0.8
    )
    same([choice.index for choice in answer.choices], [0, 1, 2, 3])
    answer = client.completions.create(model=MODEL, prompt=[[300, 301], [302]], max_tokens=4)
    same(len(answer.choices), 2)


def a_streamed_completion_is_the_whole_one():
    fields = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
    whole = client.completions.create(**fields)
    chunks = list(client.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    same("".join(chunk.choices[0].text for chunk in chunks if chunk.choices), whole.choices[0].text)
    same(chunks[-1].usage.total_tokens, whole.usage.total_tokens)


def an_echo_has_log_probabilities():
    answer = client.completions.create(
        model=MODEL, prompt="Once upon a time", max_tokens=2, echo=True, logprobs=3, temperature=0
    )
    scores = answer.choices[0].logprobs
    same(len(scores.tokens), answer.usage.total_tokens)
    same(scores.token_logprobs[0], None)
    assert all(score <= 0 for score in scores.token_logprobs[1:]), scores
    assert all(3 <= len(top) <= 4 for top in scores.top_logprobs[1:]), scores
    same("".join(scores.tokens), answer.choices[0].text)


def a_chat_answers():
    answer = chat()
    message = answer.choices[0].message
    same(message.role, "assistant")
    assert message.content or message.reasoning_content, answer
    assert answer.usage.completion_tokens <= 40


def thinking_can_be_switched_off():
    message = chat(reasoning_effort="none").choices[0].message
    assert message.content and not hasattr(message, "reasoning_content"), message


def a_streamed_chat_is_the_whole_one():
    whole = chat(max_tokens=80)
    content, thinking, finish, usage = "", "", None, None
    for chunk in chat(max_tokens=80, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            thinking += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
    message = whole.choices[0].message
    same((content, thinking), (message.content, message.reasoning_content))
    same((finish, usage.completion_tokens), (whole.choices[0].finish_reason, whole.usage.completion_tokens))


def the_stream_helper_accumulates():
    fields = {"model": MODEL, "messages": HELLO, "stop": ["."], "reasoning_effort": "none", "temperature": 0}
    with client.chat.completions.stream(**fields) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "content.delta")
        same(stream.get_final_completion().choices[0].message.content, deltas)


def chats_have_log_probabilities():
    scores = chat(reasoning_effort="none", logprobs=True, top_logprobs=2, max_tokens=6).choices[0].logprobs.content
    same(len(scores), 6)
    for score in scores:
        same(bytes(score.bytes).decode(), score.token)
        # At temperature 0 the likeliest one was taken.
        same((len(score.top_logprobs), score.top_logprobs[0].token), (2, score.token))


def a_required_tool_is_called():
    for choice in ["required", {"type": "function", "function": {"name": "weather"}}]:
        answer = chat(tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False, max_tokens=400)
        same(answer.choices[0].finish_reason, "tool_calls")
        [call] = answer.choices[0].message.tool_calls
        arguments = json.loads(call.function.arguments)
        same((call.function.name, set(arguments)), ("weather", {"place", "days"}))
        history = [
            *HELLO,
            answer.choices[0].message,
            {"role": "tool", "tool_call_id": call.id, "content": "rain"},
        ]
        assert chat(messages=history, tools=[WEATHER], max_tokens=8).choices


def streamed_tool_calls_concatenate_to_json():
    arguments, names = {}, {}
    chunks = chat(tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=400, stream=True)
    for chunk in chunks:
        for call in chunk.choices[0].delta.tool_calls or []:
            names[call.index] = names.get(call.index) or call.function.name
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    same(set(names.values()), {"weather"})
    for text in arguments.values():
        same(set(json.loads(text)), {"place", "days"})


class Home(BaseModel):
    place: Literal["house", "tree"]
    warm: bool


class Pet(BaseModel):
    kind: Literal["cat", "dog", "bird"]
    legs: int = Field(ge=0, le=8)
    friends: list[Literal["Tom", "Mia"]] = Field(max_length=2)
    home: Home | None


def a_schema_is_parsed_into_a_model():
    answer = client.chat.completions.parse(
        model=MODEL, messages=HELLO, response_format=Pet, max_tokens=600, temperature=1.0, seed=3
    )
    assert isinstance(answer.choices[0].message.parsed, Pet), answer


def any_json_object_is_an_object():
    answer = chat(response_format={"type": "json_object"}, reasoning_effort="none", max_tokens=60)
    text = answer.choices[0].message.content
    # A small model goes on as long as it may.
    assert text.startswith("{"), text
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict), text


def errors_have_their_classes():
    found = refused(openai.BadRequestError, 400, lambda: chat(temperature=-1))
    same(found.param, "temperature")
    found = refused(openai.BadRequestError, 400, lambda: chat(messages=[{"role": "user", "content": "dog " * 4000}]))
    same(found.code, "context_length_exceeded")
    found = refused(openai.NotFoundError, 404, lambda: chat(model="gpt-4"))
    same((found.code, found.type), ("model_not_found", "invalid_request_error"))
    keyless = OpenAI(base_url=f"{full_url}/v1", api_key="wrong", max_retries=0)
    found = refused(openai.AuthenticationError, 401, keyless.models.list)
    same(found.code, "invalid_api_key")
    full = OpenAI(base_url=f"{full_url}/v1", api_key=key, max_retries=0)
    ask = lambda: full.chat.completions.create(model=MODEL, messages=HELLO)
    found = refused(openai.RateLimitError, 429, ask)
    same((found.code, found.response.headers["retry-after"]), ("queue_full", "1"))


checks.run([
    models_are_listed_and_found,
    a_completion_has_text_and_usage,
    completions_take_lists_and_ids_and_several_choices,
    a_streamed_completion_is_the_whole_one,
    an_echo_has_log_probabilities,
    a_chat_answers,
    thinking_can_be_switched_off,
    a_streamed_chat_is_the_whole_one,
    the_stream_helper_accumulates,
    chats_have_log_probabilities,
    a_required_tool_is_called,
    streamed_tool_calls_concatenate_to_json,
    a_schema_is_parsed_into_a_model,
    any_json_object_is_an_object,
    errors_have_their_classes,
])
