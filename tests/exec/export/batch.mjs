// Continues several texts together: `node batch.mjs FOLDER`, and calls in JSON on the input: a slot and
// the prompt that comes to it, or how many of the first slots are continued, and by how many tokens.
// Writes the tokens of texts that have made room for others, and of those that are there.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { calls } = JSON.parse(readFileSync(0, "utf8"));
const { load } = await import(pathToFileURL(`${process.argv[2]}/chat.js`));
const { prefill, decode_batch: step } = (await load()).functions;
const best = (logits) => logits.indexOf(logits.reduce((a, b) => Math.max(a, b)));
const ended = [], texts = [];

for (const [slot, what] of calls) {
  if (typeof what !== "number") {
    if (texts[slot]) ended.push(texts[slot].found);
    prefill.resize({ n: what.length, position: 0, slot });
    prefill.inputs.ids.set(what);
    prefill.runInPlace();
    texts[slot] = { length: what.length, found: [best(prefill.outputs.logits)] };
    continue;
  }
  for (let n = 0; n < what; n++) {
    // A slot without a text gets any token at its start.
    const rows = Array.from({ length: slot }, (_, k) => texts[k] ?? { length: 1, found: [0] });
    const positions = rows.map((row) => row.length + row.found.length - 1);
    step.resize({ batch: slot, length: Math.max(...positions) + 1 });
    step.inputs.ids.set(rows.map((row) => row.found.at(-1)));
    step.inputs.positions.set(positions);
    step.runInPlace();
    const words = step.outputs.logits.length / slot;
    rows.forEach((row, k) => row.found.push(best(step.outputs.logits.subarray(k * words, (k + 1) * words))));
  }
}
console.log(JSON.stringify([ended, texts.map((text) => text.found)]));
