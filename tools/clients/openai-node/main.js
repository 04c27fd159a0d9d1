// Drives a server with OpenAI's client of npm: node main.js PACKAGE URL KEY, where PACKAGE is the
// folder of the package openai. Prints a line per check, and ends with status 1 if one failed.
//
// The answers of the server in serve/clients_test.go depend on the text of the last message.
import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';

const [, , folder, url, key] = process.argv;
const { default: OpenAI } = await import(pathToFileURL(`${folder}/index.mjs`));
const options = { baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 };
const client = new OpenAI(options);
const model = 'fake';
const ask = (text, more = {}) => ({
  model,
  messages: [{ role: 'system', content: 'Answer.' }, { role: 'user', content: [{ type: 'text', text }] }],
  ...more,
});
const tools = [{
  type: 'function',
  function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
}];

// rejects checks the parts of an error.
async function rejects(promise, kind, parts) {
  const error = await promise.then(() => assert.fail('no error'), (e) => e);
  assert.ok(error instanceof kind, `${error.constructor.name}: ${error.message}`);
  for (const [name, want] of Object.entries(parts)) assert.equal(error[name], want, name);
}

const checks = {
  async models() {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    assert.deepEqual(ids, [model]);
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async chat() {
    const r = await client.chat.completions.create(ask('hello', { seed: 3, temperature: 0.5, stop: ['END'], logprobs: true, top_logprobs: 2 }));
    assert.equal(r.choices[0].message.content, 'Hello there!');
    assert.equal(r.choices[0].finish_reason, 'stop');
    assert.equal(r.choices[0].logprobs.content.length, 12);
    assert.equal(r.usage.completion_tokens, 12);
    assert.ok(r._request_id);
  },
  async stream() {
    const s = await client.chat.completions.create(ask('hello', { stream: true, stream_options: { include_usage: true } }));
    let text = '', usage = null, finish = null;
    for await (const chunk of s) {
      text += chunk.choices[0]?.delta.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, 'Hello there!');
    assert.equal(finish, 'stop');
    assert.equal(usage.completion_tokens, 12);
  },
  async tools() {
    const request = ask('weather', { tools, tool_choice: 'auto' });
    const r = await client.chat.completions.create(request);
    const { message, finish_reason } = r.choices[0];
    assert.equal(finish_reason, 'tool_calls');
    assert.equal(message.content, null);
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: 'Rome' });
    request.messages.push(message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'sunny' });
    const after = await client.chat.completions.create(request);
    assert.equal(after.choices[0].message.content, 'It is sunny.');
  },
  async 'tool choice'() {
    for (const [tool_choice, finish] of [['required', 'tool_calls'], [{ type: 'function', function: { name: 'weather' } }, 'stop']]) {
      const r = await client.chat.completions.create(ask('hello', { tools, tool_choice }));
      assert.deepEqual(r.choices[0].message.tool_calls.map((c) => c.function.name), ['weather']);
      assert.equal(r.choices[0].finish_reason, finish);
    }
    const r = await client.chat.completions.create(ask('hello', { tools, tool_choice: 'none' }));
    assert.equal(r.choices[0].message.content, 'Hello there!');
  },
  async 'tools streamed'() {
    const final = await client.chat.completions.stream(ask('weather', { tools })).finalChatCompletion();
    const call = final.choices[0].message.tool_calls[0];
    assert.equal(call.function.name, 'weather');
    assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Rome' });
    assert.equal(final.choices[0].finish_reason, 'tool_calls');
  },
  async completion() {
    const r = await client.completions.create({ model, prompt: ['hello', 'hello'], max_tokens: 5, n: 2 });
    assert.deepEqual(r.choices.map((c) => c.text), ['Hello', 'Hello', 'Hello', 'Hello']);
    let text = '';
    for await (const chunk of await client.completions.create({ model, prompt: 'hello', max_tokens: 5, stream: true })) text += chunk.choices[0].text;
    assert.equal(text, 'Hello');
  },
  async embeddings() { // the client asks for base64
    const r = await client.embeddings.create({ model, input: ['hello', '12345'] });
    assert.deepEqual(r.data[1].embedding.map((x) => Math.round(x * 1e6) / 1e6), [0.6, 0, 0.8]);
    assert.equal(r.usage.prompt_tokens, 10);
  },
  async errors() {
    const { BadRequestError, NotFoundError, AuthenticationError, InternalServerError } = OpenAI;
    await rejects(client.chat.completions.create(ask('hello', { temperature: -1 })), BadRequestError, { status: 400, param: 'temperature', type: 'invalid_request_error' });
    await rejects(client.chat.completions.create(ask('hello', { model: 'other' })), NotFoundError, { code: 'model_not_found' });
    await rejects(new OpenAI({ ...options, apiKey: 'wrong' }).models.list(), AuthenticationError, { code: 'invalid_api_key' });
    await rejects(client.chat.completions.create(ask('fail')), InternalServerError, { code: 'internal_error' });
  },
  async retry() { // the first request gets 429, and the client repeats it after Retry-After
    await rejects(client.chat.completions.create(ask('busy')), OpenAI.RateLimitError, { code: 'server_busy' });
    const r = await client.chat.completions.create(ask('busy once'), { maxRetries: 1 });
    assert.equal(r.choices[0].message.content, 'Hello there!');
  },
  async 'error in a stream'() {
    const s = await client.chat.completions.create(ask('fail', { stream: true }));
    let text = '';
    const read = async () => { for await (const chunk of s) text += chunk.choices[0].delta.content ?? ''; };
    await rejects(read(), OpenAI.APIError, { code: 'internal_error' });
    assert.equal(text, 'He');
  },
  async timeout() {
    await rejects(client.chat.completions.create(ask('endless'), { timeout: 50 }), OpenAI.APIConnectionTimeoutError, {});
  },
  async cancel() {
    const s = await client.chat.completions.create(ask('endless', { stream: true }));
    let chunks = 0;
    for await (const _ of s) if (++chunks === 4) s.controller.abort();
    assert.ok(chunks >= 4);
  },
};

for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log('ok', name);
  } catch (e) {
    process.exitCode = 1;
    console.log('failed', name, e.message);
  }
}
