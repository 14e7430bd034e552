// Uses the module of a model in the folder that is given: the functions of `MODEL` in `test_wasm.py`.
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const { load, ModelError } = await import(new URL("model.mjs", folder));

const model = await load({ cpu: "simd128" });
assert.deepEqual(Object.keys(model.functions), ["main", "fixed", "scaled"]);
assert.equal(model.cpu, "simd128");
const fails = (message, body) => assert.throws(body, (error) => {
  assert(error instanceof ModelError);
  assert.match(error.message, message);
  return true;
});

// Sizes follow from arguments, and results have shapes.
const x = Float32Array.from({ length: 12 }, (_, n) => n);
let y = model.run({ x });
assert.deepEqual(y.result.shape, [4, 2]);
assert.deepEqual([...y.result], [3, 3, 12, 12, 21, 21, 30, 30]);
assert.deepEqual(model.sizes, { n: 4 });
y = model.run({ x: { data: x.slice(0, 3), shape: [1, 3] } });
assert.deepEqual([...y.result], [3, 3]);

// Inputs are filled in place, and results are views until sizes change.
model.resize({ n: 2, x: 5 }); // x is no size
model.inputs.x.set([1, 1, 1, 2, 2, 2]);
model.main.runInPlace();
assert.deepEqual([...model.outputs.result], [3, 3, 6, 6]);
assert.equal(model.inputs.x.buffer, model.memory.buffer);
const kept = model.run({});
assert.notEqual(kept.result.buffer, model.memory.buffer);

// Memory grows between calls; what is there before stays right.
const many = new Float32Array(300000).fill(1);
assert.deepEqual([...model.run({ x: many }).result.slice(-2)], [3, 3]);
assert.equal(model.inputs.x.length, 300000);
const { fixed } = model.functions;
assert.deepEqual([...fixed.run({ x: new Int8Array([1, -2]) }).result], [2, -4]);
assert.deepEqual([...model.run({ x: x.slice(0, 6) }).result], [3, 3, 12, 12]);

// Inputs that are not given again stay, also where others have new sizes.
const { scaled } = model.functions;
const ones = (n) => new Float32Array(n).fill(1);
fails(/the input w is missing/, () => scaled.run({ x }));
assert.deepEqual([...scaled.run({ x: ones(2), w: new Float32Array([1, 2]) }).result], [2, 4]);
for (const n of [100, 100, 3]) {
  assert.deepEqual([...scaled.run({ x: ones(n) }).result], [n, 2 * n]);
}

// Misuse is an error that says what is expected.
const doubles = new Float64Array(6);
fails(/^x: float32\[2, 3\] is a Float32Array, found Float64Array$/, () => model.run({ x: doubles }));
fails(/has 6 elements, found 7/, () => model.run({ x: new Float32Array(7) }));
fails(/found the shape \[3, 2\]/, () => model.run({ x: { data: x.slice(0, 6), shape: [3, 2] } }));
fails(/found the shape \[2, ,, 3\]/, () => model.run({ x: { data: x.slice(0, 6), shape: "2,3" } }));
fails(/is a Float32Array, found object/, () => model.run({ x: null }));
fails(/no input z; inputs are x/, () => model.run({ z: x }));
fails(/the size n is an integer, found undefined/, () => model.resize({}));
fails(/a size is negative, or too large/, () => model.resize({ n: -1 }));
fails(/a size is negative, or too large/, () => model.resize({ n: 2 ** 40 }));
fails(/call resize with n first/, () => model.main.runInPlace());
fails(/a size is negative, or too large/, () => model.resize({ n: 2 ** 28 }));
assert.deepEqual([...model.run({ x: x.slice(0, 3) }).result], [3, 3]);
await assert.rejects(load({ cpu: "avx" }), /avx is asked for/);

const file = (name) => readFileSync(new URL(name, folder));
const weights = process.argv[3] === undefined ? undefined : file(process.argv[3]);
// A module may be given, and several models do not share memory.
const other = await load({ wasm: await WebAssembly.compile(file("model.simd128.wasm")), weights });
assert.deepEqual([...other.run({ x: x.slice(0, 3) }).result], [3, 3]);
assert.notEqual(other.memory, model.memory);
console.log("passed");
