// Written by relaxpy @VERSION@: talks to the language model @NAME@. Nothing else is needed.
//
//   import { open } from "./@NAME@.chat.js";
//   const chat = await open();
//   for await (const piece of chat.answer("Hello!")) console.log(piece);
import { load } from "./@NAME@.js";

const TOKENS = @TOKENS@; // for each token its bytes, written as characters, or its text
const MERGES = @MERGES@;
const SPECIAL = new Set(@SPECIAL@); // tokens that only control the model
const ADDED = @ADDED@; // texts that are one token: of texts as they are, and of normal ones
const NORMAL = @NORMAL@; // the form of Unicode, or null
const SPLITS = @SPLITS@;
const WHOLE = @WHOLE@; // true if a piece that is a token is not merged
const FIRST = @FIRST@; // what begins a text that is no conversation
const ENDS = new Set(@ENDS@);
const TURNS = @TURNS@; // what is around messages, and what changes these, or null: the model continues texts
const MOST_KEPT = 10000;

const byteCharacters = () => {
  const shown = (n) => (n > 32 && n < 127) || (n > 160 && n < 173) || n > 173;
  let other = 256;
  return Array.from({ length: 256 }, (_, n) => String.fromCharCode(shown(n) ? n : other++));
};
const BYTES = byteCharacters();
const BYTE_OF = new Map(BYTES.map((character, byte) => [character, byte]));
const TOKEN_OF = new Map();
TOKENS.forEach((text, token) => { if (text !== null) TOKEN_OF.set(text, token); });
const RANKS = new Map(MERGES.map((merge, rank) => [merge, rank]));
const EXPRESSIONS = SPLITS.map((text) => new RegExp(text, "gu"));
const known = new Map();

const quoted = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
const finder = (texts) => texts.length === 0 ? null
  : new RegExp([...texts].sort((a, b) => b.length - a.length).map(quoted).join("|"), "gu");
const FINDERS = ADDED.map(finder);

/** The pieces of a text: what an expression finds, and what is between. */
function* pieces(text, expression) {
  let end = 0;
  for (const found of expression === null ? [] : text.matchAll(expression)) {
    if (found.index > end) yield [text.slice(end, found.index), false];
    if (found[0] !== "") yield [found[0], true];
    end = found.index + found[0].length;
  }
  if (end < text.length) yield [text.slice(end), false];
}

/** The tokens of a piece of a text: pairs are merged, those that were learned first. */
function merged(piece) {
  const present = known.get(piece);
  if (present !== undefined) return present;
  let parts = Array.from(new TextEncoder().encode(piece), (byte) => BYTES[byte]);
  const whole = parts.join("");
  if (WHOLE && TOKEN_OF.has(whole)) parts = [whole];
  while (parts.length > 1) {
    let best = Infinity, place = -1;
    for (let n = 0; n + 1 < parts.length; n++) {
      const rank = RANKS.get(`${parts[n]} ${parts[n + 1]}`) ?? Infinity;
      if (rank < best) [best, place] = [rank, n];
    }
    if (place < 0) break;
    parts.splice(place, 2, parts[place] + parts[place + 1]);
  }
  const tokens = parts.map((part) => TOKEN_OF.get(part));
  if (known.size >= MOST_KEPT) known.clear();
  known.set(piece, tokens);
  return tokens;
}

/** The tokens of a text. */
export function encode(text) {
  const tokens = [];
  for (const [outer, isToken] of pieces(text, FINDERS[0])) {
    if (isToken) { tokens.push(TOKEN_OF.get(outer)); continue; }
    const normal = NORMAL === null ? outer : outer.normalize(NORMAL);
    for (const [inner, isOne] of pieces(normal, FINDERS[1])) {
      if (isOne) { tokens.push(TOKEN_OF.get(inner)); continue; }
      let parts = [inner];
      for (const expression of EXPRESSIONS) {
        parts = parts.flatMap((part) => Array.from(pieces(part, expression), ([found]) => found));
      }
      for (const part of parts) for (const token of merged(part)) tokens.push(token);
    }
  }
  return tokens;
}

/** Tokens as text, one by one: a character may consist of several. */
export class Text {
  #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  add(token) {
    const text = TOKENS[token];
    if (text == null || SPECIAL.has(token)) return "";
    const bytes = Array.from(text, (character) => BYTE_OF.get(character));
    const content = bytes.includes(undefined) ? new TextEncoder().encode(text) : Uint8Array.from(bytes);
    return this.#decoder.decode(content, { stream: true });
  }
  end() { return this.#decoder.decode(); }
}

/** The most probable token, or one that is drawn at a temperature. */
export function choose(scores, temperature = 0) {
  let best = 0;
  for (let n = 1; n < scores.length; n++) if (scores[n] > scores[best]) best = n;
  if (!(temperature > 0)) return best;
  const weights = Float64Array.from(scores, (score) => Math.exp((score - scores[best]) / temperature));
  let left = Math.random() * weights.reduce((a, b) => a + b, 0);
  for (let n = 0; n < weights.length; n++) if ((left -= weights[n]) < 0) return n;
  return best;
}

/** An answer as the template shows it before later messages: without thoughts, if these have ended. */
function earlier(answer) {
  const end = TURNS?.end ? answer.lastIndexOf(TURNS.end) : -1;
  const shown = end < 0 ? answer : answer.slice(end + TURNS.end.length).replace(/^\n+/, "");
  return TURNS === null ? answer : shown[TURNS.answer]();
}

/** The model, loaded; `options` are those of `load`. */
export async function open(options) { return new Chat(await load(options)); }

export class Chat {
  #prefill; #decode; #tokens = []; #text = "";

  constructor(model) {
    this.model = model;
    this.#prefill = model.functions.prefill;
    this.#decode = model.functions.decode;
    this.#decode.resize({ position: 0 });
    this.context = this.#decode.inputs.keys.shape[2];
  }

  /** Forget the conversation. */
  clear() { this.#text = ""; }

  /** The answer to a message, or what continues a text, piece by piece. */
  async *answer(message, { temperature = 0, maxTokens = Infinity } = {}) {
    const text = TURNS === null ? message
      : (this.#text === "" ? TURNS.first : this.#text + TURNS.next) + message[TURNS.question]() + TURNS.last;
    const tokens = [...(TURNS === null ? FIRST : []), ...encode(text)];
    if (tokens.length === 0) throw new Error("the text has no tokens, so nothing can continue it");
    if (tokens.length >= this.context) {
      throw new Error(`the conversation has ${tokens.length} tokens, which leave no room for an answer: it has at most ${this.context}`);
    }
    let scores = this.#append(tokens);
    const written = new Text();
    let answer = "";
    const most = Math.min(maxTokens, this.context - tokens.length);
    for (let count = 0; count < most; count++) {
      const token = choose(scores, temperature);
      if (ENDS.has(token)) break;
      const piece = written.add(token);
      answer += piece;
      if (piece !== "") yield piece;
      this.#text = text + earlier(answer);
      if (count + 1 < most) scores = this.#append([...this.#tokens, token]);
      await new Promise((done) => setTimeout(done)); // the page is drawn
    }
    const rest = written.end();
    this.#text = text + earlier(answer + rest);
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
