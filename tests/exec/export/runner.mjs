// Runs exported programs: `node runner.mjs MANIFEST`. Each is called twice: by its JavaScript, and
// directly, with patterns around everything that it may write.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const PATTERN = 0xa5;
const MARGIN = 4160; // between buffers, which are misaligned by some elements

const arrays = {
  bool: Uint8Array, int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  float16: Uint16Array, bfloat16: Uint16Array, float32: Float32Array, float64: Float64Array,
};

function read(file, dtype) {
  const content = readFileSync(file);
  return new arrays[dtype](content.buffer.slice(content.byteOffset, content.byteOffset + content.length));
}

const raw = (view) => Buffer.from(view.buffer, view.byteOffset, view.byteLength);

/** Call a function with buffers between patterns; the outputs, or what it did wrong. */
function direct(instance, table, given, sizes, outputs, shift) {
  const { memory } = instance.exports;
  let end = Math.ceil(instance.exports.__heap_base.value / 64) * 64;
  const start = end;
  const areas = [];
  const take = (size, unit) => {
    const place = end + MARGIN + (shift * unit) % 64;
    end = Math.ceil((place + size + MARGIN) / 64) * 64;
    areas.push([place, place + size]);
    return place;
  };
  const fields = { in: take(table.inputFields[""], 8), out: take(table.outputFields[""], 8) };
  const places = {};
  for (const { name, content, itemsize } of given) places[name] = take(content.length, itemsize);
  for (const { name, size, itemsize } of outputs) places[name] = take(size, itemsize);
  const grow = (bytes) => {
    const missing = Math.ceil((bytes - memory.buffer.byteLength) / 65536);
    if (missing > 0) memory.grow(missing);
  };
  const store = (workspace) => {
    const view = new DataView(memory.buffer);
    for (const [name, place] of Object.entries(table.inputFields)) {
      if (name === "") continue;
      if (table.sizes.includes(name)) view.setBigInt64(fields.in + place, BigInt(sizes[name]), true);
      else if (name === "workspace_bytes") view.setBigInt64(fields.in + place, BigInt(workspace), true);
      else view.setUint32(fields.in + place, places[name] ?? 0, true);
    }
    for (const [name, place] of Object.entries(table.outputFields)) {
      if (name in places) view.setUint32(fields.out + place, places[name], true);
    }
  };
  grow(end);
  store(0);
  const bytes = Number(instance.exports[`${table.symbol}_workspace`](fields.in));
  if (bytes < 0) return { problem: `the workspace is ${bytes}` };
  const workspace = take(bytes, 1);
  grow(end + 65536);
  const all = new Uint8Array(memory.buffer);
  all.fill(PATTERN, start);
  store(bytes);
  for (const { name, content } of given) all.set(content, places[name]);
  const status = instance.exports[table.symbol](fields.in, fields.out, workspace);
  const found = {};
  for (const { name, size } of outputs) {
    found[name] = Buffer.from(all.slice(places[name], places[name] + size));
  }
  let problem = "";
  for (const { name, content, written } of given) {
    const now = Buffer.from(all.slice(places[name], places[name] + content.length));
    if (written) found[name] = now;
    else if (!now.equals(Buffer.from(content))) problem = `the input ${name} was changed`;
  }
  for (const [from, to] of areas) all.fill(PATTERN, from, to);
  const other = all.findIndex((byte, n) => n >= start && byte !== PATTERN);
  if (other >= 0) problem = `the byte ${other} outside of ${JSON.stringify(areas)} was written`;
  return { status, found, problem };
}

const results = [];
for (const each of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
  const { load, tables } = await import(pathToFileURL(`${each.folder}/${each.module}.mjs`));
  const result = { cpu: "", status: 0, problem: "", outputs: {} };
  results.push(result);
  const model = await load({ cpu: each.cpu });
  Object.assign(result, { cpu: model.cpu, fuses: model.fuses });
  const called = model.functions[each.function];
  const table = tables[each.function];
  const inputs = {};
  for (const { name, dtype, shape, file } of each.inputs) {
    inputs[name] = { data: read(file, dtype), shape };
  }
  let outputs = null;
  try {
    if (table.sizes.length > 0) called.resize(each.sizes);
    outputs = called.run(inputs);
  } catch (error) {
    if (error.name !== "ModelError") throw error;
    Object.assign(result, { status: error.status, message: error.message });
  }
  const given = table.inputs.map((tensor) => ({
    name: tensor.name,
    content: new Uint8Array(raw(inputs[tensor.name].data)),
    itemsize: tensor.array.BYTES_PER_ELEMENT,
    written: tensor.written,
  }));
  const own = table.outputs.filter((tensor) => tensor.sameAs === undefined);
  const wanted = own.map((tensor) => {
    const itemsize = tensor.array.BYTES_PER_ELEMENT;
    const size = tensor.shape(each.sizes).reduce((total, n) => total * n, itemsize);
    return { name: tensor.name, size, itemsize };
  });
  const content = readFileSync(`${each.folder}/${each.files[model.cpu]}`);
  const instance = new WebAssembly.Instance(new WebAssembly.Module(content), {});
  for (const shift of [0, 1, 3]) {
    const { status, found, problem } = direct(instance, table, given, each.sizes, wanted, shift);
    result.problem ||= problem;
    if (status !== result.status) result.problem ||= `the status is ${status}, then ${result.status}`;
    for (const { name } of outputs === null ? [] : own) {
      const bytes = raw(outputs[name]); // sizes that depend on data may be less than the largest
      if (!found[name].subarray(0, bytes.length).equals(bytes)) result.problem ||= `${name} differs`;
    }
  }
  for (const tensor of outputs === null ? [] : table.outputs) {
    const file = `${each.folder}/${each.function}.${tensor.name}.${model.cpu}.bin`;
    writeFileSync(file, raw(outputs[tensor.name]));
    result.outputs[tensor.name] = { file, shape: outputs[tensor.name].shape };
  }
}
console.log(JSON.stringify(results));
