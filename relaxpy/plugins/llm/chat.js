// Written by relaxpy @VERSION@: talks to the language model @NAME@. Nothing else is needed.
//
//   import { open } from "./@NAME@.chat.js";
//   const chat = await open();
//   for await (const piece of chat.answer("Hello!")) console.log(piece);
import { load } from "./@NAME@.js";

// The tokenizer: sections of 32-bit integers, in the order of these names.
const TABLES = "@TABLES@";
const SECTIONS = @SECTIONS@;
const NUMBERS = @NUMBERS@;
const [, EITHER, AHEAD, FOUND] = [0, 1, 2, 3];
const SPACE = 0x@SPACE@;

const words = new Int32Array(Uint8Array.from(atob(TABLES), (c) => c.charCodeAt(0)).buffer);
const T = Object.fromEntries(SECTIONS.map((name, n) => {
  const start = words[2 + 2 * n];
  return [name, words.subarray(start, start + words[3 + 2 * n])];
}));
const N = Object.fromEntries(NUMBERS.map((name, n) => [name, T.numbers[n]]));
const bytesOf = (section) => new Uint8Array(section.buffer, section.byteOffset, section.byteLength);
const TEXTS = bytesOf(T.texts);
const TURNS = T.turn_starts.length === 0 ? null : [0, 1, 2, 3, 4].map((n) =>
  new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytesOf(T.turn_texts).subarray(T.turn_starts[n], T.turn_starts[n + 1])));
const ENDS = new Set(T.ends);
const has = (section) => section.length > 0;

/** The last of the rows of a sorted table whose first words are not after these, or -1. */
function find(rows, width, a, b = 0x7fffffff) {
  let low = 0, high = rows.length / width;
  while (low < high) {
    const n = (low + high) >> 1, at = n * width;
    if (rows[at] < a || (rows[at] === a && (width < 3 || rows[at + 1] <= b))) low = n + 1;
    else high = n;
  }
  return low - 1;
}

/** The row of a sorted table that begins with a word, and with two if it has three, or -1. */
function row(rows, width, a, b) {
  const at = find(rows, width, a, b) * width;
  return at >= 0 && rows[at] === a && (width < 3 || rows[at + 1] === b) ? at : -1;
}
function value(rows, a, other) {
  const at = row(rows, 2, a);
  return at < 0 ? other : rows[at + 1];
}

/** Append the decomposition of a character. */
function decompose(c, out) {
  const at = find(T.decomposed, 3, c) * 3, n = c - 0xac00;
  let parts = [c];
  if (n >= 0 && n < 11172) {
    parts = [0x1100 + Math.floor(n / 588), 0x1161 + Math.floor((n % 588) / 28), 0x11a7 + (n % 28)];
    if (n % 28 === 0) parts.pop();
  } else if (at >= 0 && T.decomposed[at] === c) {
    const start = T.decomposed[at + 1];
    parts = T.decompositions.subarray(start, start + T.decomposed[at + 2]);
  }
  out.push(...parts);
}

/** Characters in the order of combining classes, between those that have none. */
function ordered(text) {
  const orders = text.map((c) => value(T.classes, c, 0));
  let start = 0;
  const starts = orders.map((order, n) => (order === 0 ? start = n : start));
  return text.map((_, n) => n)
    .sort((a, b) => starts[a] - starts[b] || orders[a] - orders[b]).map((n) => text[n]);
}

/** The character that two are together, or -1. */
function together(a, b) {
  if (a >= 0x1100 && a < 0x1113 && b >= 0x1161 && b < 0x1176) {
    return 0xac00 + (a - 0x1100) * 588 + (b - 0x1161) * 28;
  }
  if (a >= 0xac00 && a < 0xac00 + 11172 && (a - 0xac00) % 28 === 0 && b > 0x11a7 && b < 0x11c3) {
    return a + b - 0x11a7;
  }
  const at = row(T.composed, 3, a, b);
  return at < 0 ? -1 : T.composed[at + 2];
}

function composed(text) {
  const out = [];
  let starter = -1, last = 0;
  for (const c of text) {
    const order = value(T.classes, c, 0);
    const isNext = starter >= 0 && (out.length === starter + 1 || last < order);
    const both = isNext ? together(out[starter], c) : -1;
    if (both >= 0) { out[starter] = both; continue; }
    if (order === 0) starter = out.length;
    last = order;
    out.push(c);
  }
  return out;
}

/** The row of the longest text that is one token and begins at a place, or -1: the texts are sorted. */
function addedAt(rows, text, at) {
  let first = 0, end = rows.length / 3, found = -1;
  for (let n = 0; at + n < text.length && first < end; n++) {
    const character = (row) => T.added_texts[rows[3 * row + 1] + n], wanted = text[at + n];
    let high = end;
    while (first < high) {
      const middle = (first + high) >> 1;
      if (character(middle) < wanted) first = middle + 1;
      else high = middle;
    }
    for (let low = first; low < end;) {
      const middle = (low + end) >> 1;
      if (character(middle) <= wanted) low = middle + 1;
      else end = middle;
    }
    if (first < end && rows[3 * first + 2] === n + 1) found = 3 * first++;
  }
  return found;
}

/** What is between the texts that are tokens, and these tokens: (start, end, token or -1). */
function* segments(rows, text, from) {
  let begin = from;
  for (let at = from; at <= text.length;) {
    const found = addedAt(rows, text, at);
    if (found < 0 && at < text.length) { at++; continue; }
    yield [begin, at, found < 0 ? -1 : rows[found]];
    if (found < 0) return;
    begin = at += rows[found + 2];
  }
}

/** A heap of (rank, place, new token), whose first one comes out first. */
class Heap {
  #entries = [];
  get size() { return this.#entries.length; }
  #before(a, b) {
    const [x, y] = [this.#entries[a], this.#entries[b]];
    return x[0] < y[0] || (x[0] === y[0] && x[1] < y[1]);
  }
  #swap(a, b) { [this.#entries[a], this.#entries[b]] = [this.#entries[b], this.#entries[a]]; }
  push(entry) {
    let n = this.#entries.push(entry) - 1;
    for (let up; n > 0 && this.#before(n, (up = (n - 1) >> 1)); n = up) this.#swap(n, up);
  }
  pop() {
    const first = this.#entries[0], last = this.#entries.pop();
    if (this.#entries.length > 0) this.#entries[0] = last;
    for (let n = 0, child; (child = 2 * n + 1) < this.#entries.length; n = child) {
      if (child + 1 < this.#entries.length && this.#before(child + 1, child)) child++;
      if (!this.#before(child, n)) break;
      this.#swap(child, n);
    }
    return first;
  }
}

/** The token whose bytes these are, or -1: a piece that is a token is not merged. */
function whole(bytes) {
  let low = 0, high = T.whole.length;
  while (low < high) {
    const middle = (low + high) >> 1, token = T.whole[middle];
    const text = TEXTS.subarray(T.starts[token], T.starts[token + 1]);
    let n = 0;
    while (n < bytes.length && n < text.length && bytes[n] === text[n]) n++;
    if (n === bytes.length && n === text.length) return token;
    if (n === text.length || (n < bytes.length && text[n] < bytes[n])) low = middle + 1;
    else high = middle;
  }
  return -1;
}

const utf8 = new TextEncoder();

/** Append the tokens of a piece: symbols are merged, those that were learned first. */
function merge(piece, tokens) {
  const ids = [];
  if (has(T.characters)) {
    let wasUnknown = false;
    for (const c of piece) {
      const token = value(T.characters, c, -1);
      if (token >= 0) ids.push(token);
      else if (has(T.bytes)) for (const byte of utf8.encode(String.fromCodePoint(c))) ids.push(T.bytes[byte]);
      else if (N.unknown >= 0 && !(wasUnknown && N.fuses)) ids.push(N.unknown);
      wasUnknown = token < 0;
    }
  } else {
    const bytes = utf8.encode(Array.from(piece, (c) => String.fromCodePoint(c)).join(""));
    const token = whole(bytes);
    if (token >= 0) { tokens.push(token); return; }
    for (const byte of bytes) ids.push(T.bytes[byte]);
  }
  const size = ids.length, heap = new Heap();
  const next = Int32Array.from(ids, (_, n) => (n + 1 < size ? n + 1 : -1));
  const last = Int32Array.from(ids, (_, n) => n - 1);
  const note = (place) => {
    if (place < 0 || next[place] < 0) return;
    const at = row(T.merges, 4, ids[place], ids[next[place]]);
    if (at >= 0) heap.push([T.merges[at + 2], place, T.merges[at + 3]]);
  };
  for (let n = 0; n < size; n++) note(n);
  while (heap.size > 0) {
    const [, place, made] = heap.pop(), other = next[place];
    if (ids[place] < 0 || other < 0) continue;
    const at = row(T.merges, 4, ids[place], ids[other]);
    if (at < 0 || T.merges[at + 3] !== made) continue; // one of them has changed since
    ids[place] = made;
    ids[other] = -1;
    next[place] = next[other];
    if (next[place] >= 0) last[next[place]] = place;
    note(last[place]);
    note(place);
  }
  for (const id of ids) if (id >= 0) tokens.push(id);
}

/** The end of what an expression finds at a place of a text, or -1: all ways are tried at once. */
function match(first, kinds, start, end) {
  let found = -1, at = start;
  const isIn = (set, place) => place < end && T.sets[set * N.kinds + kinds[place]] === 1;
  const reach = (states, seen, from, place) => {
    const left = [from];
    while (left.length > 0) {
      const state = left.pop(), code = 3 * state;
      if (seen.has(state)) continue;
      seen.add(state);
      const kind = T.program[code];
      if (kind === EITHER) left.push(T.program[code + 2], T.program[code + 1]);
      else if (kind !== AHEAD) states.push(state);
      else if (isIn(T.program[code + 1], place) === (T.program[code + 2] === 1)) left.push(state + 1);
    }
  };
  let now = [];
  reach(now, new Set(), first, at);
  for (; now.length > 0; at++) {
    const then = [], seen = new Set();
    for (const state of now) {
      if (T.program[3 * state] === FOUND) { found = at; break; } // what is left is less preferred
      if (isIn(T.program[3 * state + 1], at)) reach(then, seen, state + 1, at + 1);
    }
    now = then;
  }
  return found;
}

/** Append the tokens of a part of a text that expressions split, from one of them on. */
function split(level, text, kinds, start, end, tokens) {
  if (level === T.splits.length) { merge(text.slice(start, end), tokens); return; }
  for (let at = start; at < end;) {
    const stop = match(T.splits[level], kinds, at, end);
    if (stop <= at) { at++; continue; }
    if (start < at) split(level + 1, text, kinds, start, at, tokens);
    split(level + 1, text, kinds, at, stop, tokens);
    start = at = stop;
  }
  if (start < end) split(level + 1, text, kinds, start, end, tokens);
}

/** The tokens of a text. */
export function encode(text) {
  if (/\p{Surrogate}/u.test(text)) throw new Error("the text has half of a character");
  const characters = Array.from(text, (c) => c.codePointAt(0)), tokens = [];
  const space = N.spaces ? SPACE : 32;
  const spaced = (part) => part.map((c) => (c === 32 ? space : c));
  for (const [start, end, token] of segments(T.added, characters, 0)) {
    if (start < end) {
      let normal = characters.slice(start, end);
      if (N.form > 0) {
        const parts = [];
        for (const c of normal) decompose(c, parts);
        normal = N.form === 2 ? composed(ordered(parts)) : ordered(parts);
      }
      if (N.prefix < 2) normal = spaced(normal);
      if (N.prefix === 1) normal.unshift(space);
      for (const [begin, stop, one] of segments(T.normal_added, normal, 0)) {
        if (begin < stop) {
          let part = normal.slice(begin, stop);
          if (N.prefix > 1) part = spaced(part);
          const isFirst = start === 0 && begin === 0;
          if ((N.prefix === 2 || (N.prefix === 3 && isFirst)) && part[0] !== space) part.unshift(space);
          const kinds = has(T.splits) ? part.map((c) => T.ranges[2 * find(T.ranges, 2, c) + 1]) : [];
          split(0, part, kinds, 0, part.length, tokens);
        }
        if (one >= 0) tokens.push(one);
      }
    }
    if (token >= 0) tokens.push(token);
  }
  return tokens;
}

/** Tokens as text, one by one: a character may consist of several. */
export class Text {
  #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #whole = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
  #bytes = []; #strips;
  /** One that continues another text keeps the space before it. */
  constructor(continues = false) { this.#strips = N.strips === 1 && !continues; }
  add(token) {
    if (!(token >= 0 && token < T.hidden.length) || T.hidden[token]) return "";
    let content = TEXTS.subarray(T.starts[token], T.starts[token + 1]);
    if (this.#strips && content.length > 0) {
      if (content[0] === 32) content = content.subarray(1);
      this.#strips = false;
    }
    if (!has(T.characters)) return this.#decoder.decode(content, { stream: true });
    this.#bytes.push(...content);
    return this.#taken(false);
  }
  end() { return has(T.characters) ? this.#taken(true) : this.#decoder.decode(); }
  /** The characters that are complete; of tokens of SentencePiece, each byte of others is one. */
  #taken(isEnd) {
    let found = "", at = 0;
    const bytes = Uint8Array.from(this.#bytes);
    while (at < bytes.length) {
      const first = bytes[at];
      const size = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 1;
      const part = bytes.subarray(at, at + size);
      if (part.length < size && !isEnd && part.every((b, n) => n === 0 || (b & 0xc0) === 0x80)) break;
      try {
        found += this.#whole.decode(part);
        at += size;
      } catch {
        found += "\ufffd";
        at += 1;
      }
    }
    this.#bytes = this.#bytes.slice(at);
    return found;
  }
}

const WHITE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

/** A message without the white space at its start (sides 1), at its end (2), or at both (3), as in Python. */
function trimmed(message, sides) {
  let start = 0, end = message.length;
  while (sides & 1 && start < end && WHITE.test(message[start])) start++;
  while (sides & 2 && start < end && WHITE.test(message[end - 1])) end--;
  return message.slice(start, end);
}

/** An answer as the template shows it before later messages: without thoughts, if these have ended. */
function earlier(answer) {
  const at = N.thoughts > 0 ? answer.lastIndexOf(TURNS[4]) : -1;
  if (at < 0) return trimmed(answer, N.answer);
  const rest = answer.slice(at + TURNS[4].length);
  return trimmed(N.thoughts === 2 ? rest.replace(/^\n+/, "") : rest, N.answer);
}

/** The most probable token, or one that is drawn at a temperature. */
export function choose(scores, temperature = 0) {
  let best = 0;
  for (let n = 1; n < scores.length; n++) if (scores[n] > scores[best]) best = n;
  if (!(scores[best] > -Infinity)) throw new Error("the scores of the next token are not numbers");
  if (!(temperature > 0)) return best;
  const weights = Float64Array.from(scores, (score) => Math.exp((score - scores[best]) / temperature));
  let left = Math.random() * weights.reduce((a, b) => a + b, 0);
  for (let n = 0; n < weights.length; n++) if ((left -= weights[n]) < 0) return n;
  return best;
}

/** The model, loaded; `options` are those of `load`. */
export async function open(options) { return new Chat(await load(options)); }

/** The most bytes of a token: a text with more of them for each place of the context is too long. */
const LONGEST = T.hidden.reduce((most, _, n) => Math.max(most, T.starts[n + 1] - T.starts[n]), 1);

export class Chat {
  #prefill; #decode; #tokens = []; #asked = null; #answered = ""; #isBusy = false;

  constructor(model) {
    this.model = model;
    this.#prefill = model.functions.prefill;
    this.#decode = model.functions.decode;
    this.#decode.resize({ position: 0 });
    this.context = this.#decode.inputs.keys.shape[2];
  }

  /** Forget the conversation. */
  clear() {
    this.#check();
    this.#asked = null;
  }

  /** The answer to a message, or what continues a text, piece by piece. */
  async *answer(message, { temperature = 0, maxTokens = Infinity } = {}) {
    this.#check();
    if (typeof message !== "string") throw new TypeError(`a message is a text, found ${typeof message}`);
    if (!(temperature >= 0 && temperature < Infinity)) {
      throw new RangeError(`the temperature is a number from 0 on, found ${temperature}`);
    }
    if (!(maxTokens >= 1)) throw new RangeError(`maxTokens is a number from 1 on, found ${maxTokens}`);
    this.#isBusy = true;
    try {
      yield* this.#answer(message, temperature, maxTokens);
    } finally {
      this.#isBusy = false;
    }
  }

  #check() {
    if (this.#isBusy) throw new Error("an answer is being written: wait for its end, or leave its loop");
  }

  async *#answer(message, temperature, maxTokens) {
    let text = message, asked = message;
    if (TURNS !== null) {
      const before = this.#asked === null ? TURNS[0]
        : this.#asked + TURNS[3] + earlier(this.#answered) + TURNS[1];
      asked = before + trimmed(message, N.question);
      text = asked + TURNS[2];
    }
    const full = (size) => new Error(`the conversation has ${size}, which leave no room for an answer: `
      + `it has at most ${this.context} tokens; clear() begins a new one`);
    const isTooLong = has(T.bytes) && text.length > this.context * LONGEST * N.growth;
    if (isTooLong) throw full(`${text.length} characters`);
    const tokens = [...(TURNS === null ? T.first : []), ...encode(text)];
    if (tokens.length === 0) throw new Error("the text has no tokens, so nothing can continue it");
    if (tokens.length >= this.context) throw full(`${tokens.length} tokens`);
    let scores = this.#append(tokens);
    [this.#asked, this.#answered] = [asked, ""];
    const written = new Text(true);
    const most = Math.min(maxTokens, this.context - tokens.length);
    for (let count = 0; count < most; count++) {
      const token = choose(scores, temperature);
      if (ENDS.has(token)) break;
      const piece = written.add(token);
      this.#answered += piece;
      if (piece !== "") yield piece;
      if (count + 1 < most) scores = this.#append([...this.#tokens, token]);
      await new Promise((done) => setTimeout(done)); // the page is drawn
    }
    const rest = written.end();
    this.#answered += rest;
    if (rest !== "") yield rest;
  }

  /** The scores after tokens, of which those that begin as the last ones are not computed again. */
  #append(tokens) {
    let same = 0;
    while (same < tokens.length - 1 && tokens[same] === this.#tokens[same]) same++;
    const rest = tokens.slice(same);
    const isOne = rest.length === 1;
    const call = isOne ? this.#decode : this.#prefill;
    this.#tokens = tokens.slice(0, same); // should the call fail
    call.resize(isOne ? { position: same } : { n: rest.length, position: same });
    call.inputs.ids.set(rest);
    call.runInPlace();
    this.#tokens = tokens;
    return call.outputs.logits;
  }
}
