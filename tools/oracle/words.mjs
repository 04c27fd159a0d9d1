#!/usr/bin/env node
// Words of the pre-tokenizers by the regular expressions of JavaScript.
//
//     node tools/oracle/words.mjs golden/tokenizer/tokens.json > golden/tokenizer/words.json
//
// The expressions are those of the models' tokenizer.json, look-around included. The texts are
// those of the given file and the ones below. Each word is written as its length in bytes.
import fs from 'node:fs';

const texts = [
  'École ÉCOLE ÉcoleÀ ǅabc ʰab iPhone HTTPServer', "I'll we'Ve IT'S it'ſa 'tis don't'", 'नमस्ते दुनिया। ठीक، है۔', 'ａｂｃ１２３ ①② Ⅷ₂ Ⓐ1234',
  '1234567 12345678 123456789 1 12 a1234 1234a 1234_ 1234. 12345é 1234\u0301 ٣٤٥٦', '½1234a  1234a ½½½½', 'https://a.b/c//d/\n/e.\r\n/', 'a\n\n  b \n c\r\n\t d  \n',
  '한국어 ㄱㄴ 中文，“測試”……、。 ㄅㄆㄇ かなカナ', '안녕1234中文12かな', 'ไทย ລາວ ខ្មែរ မြန်မာ ꩠ ｱｲ ⼀ 豈', '!abc #def _x `y` ~z $9 +1 <=> ^^', 'x\u0000\u0000y \u0000', 'a b c  d e1 f',
  'e\u0301\u0302x \u0301y é', ' '.repeat(1200) + 'x', ' '.repeat(300), 'x' + '\u00a0'.repeat(7) + '1' + ' '.repeat(5) + '\n' + ' '.repeat(40) + '!', '(a|b). c,d ! e?', "l'été d'Or",
];

// Case is ignored only here: Node.js 20 has no (?i:).
const contraction = "(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
const spaces = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;
const gpt2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`;
const llama3 = (digits, end = spaces) => String.raw`${contraction}|[^\r\n\p{L}\p{N}]?\p{L}+|${digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + end;
const gpt4o = (suffix, digits) => String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+${suffix}|`
  + String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*${suffix}|${digits}| ?[^\s\p{L}\p{N}]+[\r\n\/]*|` + spaces;
const deepseek3 = String.raw`[!"#$%&'()*+,\-.\/:;<=>?@\[\\\]^_\x60{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|` + spaces;
const powers = [512, 256, 128, 64, 32, 16, 8, 4].map(n => String.raw`\s{${n}}(?!\S)|`).join('') + String.raw`\s{1,2}(?!\S)|\s{1}`;
const bloom = ' ?[^(\\s|.,!?…。，、।۔،)]+';
const lines = String.raw`[^\n]+|[\n]+`;
const word = String.raw`[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]`, boundary = `(?:(?<=${word})(?!${word})|(?<!${word})(?=${word}))`;
const han = '[一-龥぀-ゟ゠-ヿ]+';

const expressions = {
  'gpt-2': [gpt2],
  'llama3': [llama3('\\p{N}{1,3}')],
  'hunyuan': [llama3('\\p{N}')],
  'starcoder': ['\\p{N}', gpt2],
  'qwen35': [String.raw`${contraction}|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` + spaces],
  'gpt-4o': [gpt4o(contraction + '?', '\\p{N}{1,3}')],
  'tekken': [gpt4o('', '\\p{N}')],
  'tiny_aya': [String.raw`\p{Nd}{1,3}(?=(?:\p{Nd}{3})*${boundary})`, gpt4o(contraction + '?', '\\p{N}{1,3}')],
  'youtu': ['[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|' + han, gpt4o(contraction + '?', '\\p{N}')],
  'deepseek-v3': ['\\p{N}{1,3}', han, deepseek3],
  'afmoe': [String.raw`\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))`, String.raw`[一-鿿㐀-䶿\uF900-\uFAFF぀-ゟ゠-ヿ･-ﾟ⼀-⿟\u0E40-\u0E7F\u0E80-\u0EFF\u1780-\u17FF\u1000-\u109F`
    + String.raw`\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-\uD7AF\u1100-\u11FF]+`, deepseek3],
  'gemma4': [lines],
  'laguna': [lines, llama3('\\p{N}')],
  'minicpm5': ['\\p{N}{1,3}', llama3('\\p{N}+')],
  'seed-coder': [String.raw`${contraction}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|` + spaces],
  'bailingmoe': [String.raw`'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`],
  'exaone-moe': [String.raw`${contraction}|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n\/]?|\s*[\r\n]|\s+(?!\S)|\s+`],
  'jais-2': [llama3('\\p{N}{1,3}', String.raw`\s*[\r\n]+|` + powers)],
  'default': [String.raw`[\p{P}\$\+<=>\^~\|]+`, gpt2, '\\p{N}+', '[0-9][0-9][0-9]'],
  'falcon': ['[\\p{P}\\$\\+<=>\\^~\\|`]+', gpt2, '[0-9][0-9][0-9]'],
  'deepseek-coder': ['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', '[一-龥\\u0800-一가-\\uD7FF]+', '\\p{N}'],
  'bloom': [bloom],
  'viking': [bloom, '\\p{N}'],
};

// compile gives \s and \S the meaning of the property White_Space.
function compile(expression) {
  let out = '', brackets = false;
  for (let i = 0; i < expression.length; i++) {
    const pair = expression.slice(i, i + 2);
    if (pair[0] === '\\') {
      out += pair === '\\s' ? (brackets ? '\\p{White_Space}' : '[\\p{White_Space}]') : pair === '\\S' ? '\\P{White_Space}' : pair;
      i++;
      continue;
    }
    brackets = pair[0] === '[' || brackets && pair[0] !== ']';
    out += pair[0];
  }
  return new RegExp(out, 'gu');
}

// split returns the matches of an expression and what is between them.
function split(expression, text) {
  const words = [];
  let at = 0;
  for (const match of text.matchAll(expression)) {
    words.push(text.slice(at, match.index), match[0]);
    at = match.index + match[0].length;
  }
  words.push(text.slice(at));
  return words.filter(word => word);
}

const all = JSON.parse(fs.readFileSync(process.argv[2], 'utf8')).texts.concat(texts);
const words = {};
for (const [name, list] of Object.entries(expressions)) {
  const compiled = list.map(compile);
  words[name] = all.map(text => compiled.reduce((parts, e) => parts.flatMap(part => split(e, part)), text ? [text] : []).map(word => Buffer.byteLength(word)));
}
const rows = Object.entries(words).map(([name, lists]) => `${JSON.stringify(name)}:[\n${lists.map(l => JSON.stringify(l)).join(',\n')}]`);
console.log(`{"made_by":"Node.js ${process.version}","texts":${JSON.stringify(all)},\n"words":{${rows.join(',\n')}}}`);
