// Continues prompts by the most probable tokens: `node greedy.mjs FOLDER CPU`, prompts in JSON on
// the input.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, cpu] = process.argv.slice(2);
const { steps, prompts } = JSON.parse(readFileSync(0, "utf8"));
const { load } = await import(pathToFileURL(`${folder}/chat.js`));
const model = await load({ cpu });
const { prefill, decode } = model.functions;
const best = (logits) => logits.indexOf(logits.reduce((a, b) => Math.max(a, b)));

function greedy(prompt) {
  prefill.resize({ n: prompt.length, position: 0 });
  prefill.inputs.ids.set(prompt);
  prefill.runInPlace();
  const found = [best(prefill.outputs.logits)];
  while (found.length < steps) {
    decode.resize({ position: prompt.length + found.length - 1 });
    decode.inputs.ids[0] = found.at(-1);
    decode.runInPlace();
    found.push(best(decode.outputs.logits));
  }
  return found;
}

const tokens = prompts.map(greedy);
let error = "";
try {
  decode.resize({ position: decode.inputs.keys.shape[2] });
  decode.runInPlace();
} catch (found) {
  error = found.message;
}
const shares = prefill.inputs.keys.byteOffset === decode.inputs.keys.byteOffset;
console.log(JSON.stringify({ tokens, error, shares, cpu: model.cpu }));
