// The official JavaScript client of OpenAI's interface, briefly: `node openai_client.mjs URL URL_OF_A_FULL_SERVER ITS_KEY`.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { run } from "./checks.mjs";

const [url, fullUrl, key] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Tell me a story about a dog." }];
const weather = {
  type: "function",
  function: {
    name: "weather",
    parameters: {
      type: "object",
      properties: { place: { enum: ["here", "there"] } },
      required: ["place"],
      additionalProperties: false,
    },
  },
};

await run({
  async "a completion has text and usage"() {
    const answer = await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 12 });
    assert.ok(answer.choices[0].text.trim());
    assert.equal(answer.usage.completion_tokens, 12);
  },

  async "a streamed chat is the whole one"() {
    const fields = { model, messages, max_tokens: 60, temperature: 0, reasoning_effort: "none" };
    const whole = await client.chat.completions.create(fields);
    let [text, usage] = ["", null];
    const options = { stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await client.chat.completions.create({ ...fields, ...options })) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.total_tokens, whole.usage.total_tokens);
  },

  async "a tool runs in the helper's loop"() {
    const asked = [];
    const runner = client.chat.completions.runTools({
      model,
      messages,
      max_tokens: 300,
      temperature: 0,
      parallel_tool_calls: false,
      tool_choice: { type: "function", function: { name: "weather" } },
      tools: [
        {
          type: "function",
          function: {
            ...weather.function,
            parse: JSON.parse,
            function: ({ place }) => asked.push(place) && "rain",
          },
        },
      ],
    });
    await runner.done();
    assert.ok(["here", "there"].includes(asked[0]), asked);
  },

  async "streamed tool calls concatenate to JSON"() {
    const stream = client.chat.completions.stream({
      model,
      messages,
      max_tokens: 300,
      temperature: 0,
      tools: [weather],
      tool_choice: "required",
      parallel_tool_calls: false,
    });
    const [choice] = (await stream.finalChatCompletion()).choices;
    assert.equal(choice.finish_reason, "tool_calls");
    assert.deepEqual(Object.keys(JSON.parse(choice.message.tool_calls[0].function.arguments)), ["place"]);
  },

  async "a schema is parsed"() {
    const Pet = z.object({ kind: z.enum(["cat", "dog"]), tame: z.boolean() });
    const response_format = zodResponseFormat(Pet, "pet");
    const answer = await client.chat.completions.parse({ model, messages, response_format, max_tokens: 300 });
    Pet.parse(answer.choices[0].message.parsed);
  },

  async "errors have their classes"() {
    const ask = (client, fields) => () => client.chat.completions.create({ model, messages, ...fields });
    await assert.rejects(ask(client, { temperature: -1 }), OpenAI.BadRequestError);
    await assert.rejects(ask(client, { model: "gpt-4" }), OpenAI.NotFoundError);
    const other = (apiKey) => new OpenAI({ baseURL: `${fullUrl}/v1`, apiKey, maxRetries: 0 });
    await assert.rejects(ask(other("wrong")), OpenAI.AuthenticationError);
    await assert.rejects(ask(other(key)), OpenAI.RateLimitError);
  },
});
