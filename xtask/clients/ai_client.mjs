// Vercel's AI SDK over its provider for compatible servers: `node ai_client.mjs URL URL_OF_A_FULL_SERVER ITS_KEY`.

import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";
import { run } from "./checks.mjs";

const [url, fullUrl, key] = process.argv.slice(2);
const provider = (url, apiKey) =>
  createOpenAICompatible({
    name: "kipp",
    baseURL: `${url}/v1`,
    apiKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
const kipp = provider(url, "none")("kipp-tiny");
const common = { model: kipp, prompt: "Tell me a story about a dog.", temperature: 0, maxRetries: 0 };
const brief = { ...common, maxOutputTokens: 60, providerOptions: { kipp: { reasoningEffort: "none" } } };
const weather = (execute) =>
  tool({
    description: "The weather of a place",
    inputSchema: z.object({ place: z.enum(["here", "there"]), days: z.number().int().min(1).max(9) }),
    execute,
  });
const calls = { ...common, maxOutputTokens: 400, toolChoice: "required", stopWhen: stepCountIs(1) };
const Pet = z.object({ kind: z.enum(["cat", "dog"]), tame: z.boolean() });

await run({
  async "text is generated and counted"() {
    const { text, usage, finishReason } = await generateText(brief);
    assert.ok(text.trim());
    assert.ok(usage.inputTokens > 0 && usage.outputTokens <= 60, JSON.stringify(usage));
    assert.ok(["stop", "length"].includes(finishReason), finishReason);
  },

  async "thinking comes as reasoning"() {
    const { text, reasoningText } = await generateText({ ...common, maxOutputTokens: 400 });
    assert.ok(text && reasoningText);
  },

  async "a streamed text is the whole one"() {
    const whole = await generateText(brief);
    const stream = streamText(brief);
    let text = "";
    for await (const piece of stream.textStream) text += piece;
    assert.equal(text, whole.text);
    assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
  },

  async "a required tool is called and its result read"() {
    const asked = [];
    const execute = async (input) => asked.push(input) && "rain";
    const { toolCalls, toolResults } = await generateText({ ...calls, tools: { weather: weather(execute) } });
    assert.equal(toolCalls[0].toolName, "weather");
    assert.deepEqual(asked[0], toolCalls[0].input);
    assert.equal(toolResults[0].output, "rain");
  },

  async "a required tool is streamed"() {
    const stream = streamText({ ...calls, tools: { weather: weather() } });
    const parts = [];
    for await (const part of stream.fullStream) parts.push(part);
    const error = parts.find((part) => part.type === "error");
    assert.equal(error, undefined, error?.error);
    const call = parts.find((part) => part.type === "tool-call");
    assert.ok(["here", "there"].includes(call.input.place) && call.input.days >= 1, JSON.stringify(call));
    const first = parts.filter((part) => part.type === "tool-input-delta" && part.id === call.toolCallId);
    assert.deepEqual(JSON.parse(first.map((part) => part.delta).join("")), call.input);
  },

  async "an object matches its schema"() {
    const { object } = await generateObject({ ...common, maxOutputTokens: 300, schema: Pet });
    Pet.parse(object);
  },

  async "a streamed object matches its schema"() {
    const stream = streamObject({ ...common, maxOutputTokens: 300, schema: Pet });
    for await (const _ of stream.partialObjectStream);
    Pet.parse(await stream.object);
  },

  async "errors have their status"() {
    const fails = async (status, fields) => {
      const is = (error) => APICallError.isInstance(error) && error.statusCode === status;
      await assert.rejects(generateText({ ...brief, ...fields }), is, String(status));
    };
    await fails(400, { temperature: -1 });
    await fails(401, { model: provider(fullUrl, "wrong")("kipp-tiny") });
    await fails(404, { model: provider(url, "none")("another") });
    await fails(429, { model: provider(fullUrl, key)("kipp-tiny") });
  },
});
