// Written by relaxpy @VERSION@: loads @NAME@ and calls its functions. Nothing else is needed.
//
//   import { load } from "./@NAME@.js";
//   const model = await load();
//   const outputs = model.run({ name: new Float32Array([...]) });
//
// The functions:
@FUNCTIONS_IN_WORDS@

const PREFIX = @PREFIX@;
const BUILDS = @BUILDS@;
const WEIGHTS = @WEIGHTS@;
const WEIGHTS_BYTES = @WEIGHTS_BYTES@;
const FUNCTIONS = {
@FUNCTIONS@};

const LINE = 64; // tensors begin at multiples of a cache line
const PAGE = 65536;
const up = (size, unit = LINE) => Math.ceil(size / unit) * unit;

// (a, b, c) -> a * b + c by the instruction whose rounding an engine chooses.
const PROBE = new Uint8Array([
  0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x01, 0x60, 0x03, 0x7d, 0x7d, 0x7d,
  0x01, 0x7d, 0x03, 0x02, 0x01, 0x00, 0x07, 0x05, 0x01, 0x01, 0x66, 0x00, 0x00, 0x0a, 0x16, 0x01,
  0x14, 0x00, 0x20, 0x00, 0xfd, 0x13, 0x20, 0x01, 0xfd, 0x13, 0x20, 0x02, 0xfd, 0x13, 0xfd, 0x85,
  0x02, 0xfd, 0x1f, 0x00, 0x0b,
]);

export class ModelError extends Error {
  constructor(message, status = 0, index = 0, size = 0) {
    super(message);
    this.name = "ModelError";
    Object.assign(this, { status, index, size });
  }
}

/** The model, compiled for the best instructions that the engine has. */
export async function load({ wasm, weights, cpu } = {}) {
  const hasRelaxed = WebAssembly.validate(PROBE);
  const usable = BUILDS.filter((build) => build.cpu !== "relaxed-simd" || hasRelaxed);
  const build = cpu === undefined ? usable[0] : usable.find((each) => each.cpu === cpu);
  if (build === undefined) {
    const found = cpu === undefined ? "" : `${cpu} is asked for, and `;
    const built = BUILDS.map((each) => each.cpu).join(", ");
    throw new ModelError(`${found}the engine has none of the instructions of ${built}`);
  }
  const module = await compiled(wasm?.[build.cpu] ?? wasm ?? new URL(build.file, import.meta.url));
  const instance = await WebAssembly.instantiate(module, {});
  let fuses = false;
  if (build.cpu === "relaxed-simd") {
    const probe = new WebAssembly.Instance(new WebAssembly.Module(PROBE)).exports.f;
    fuses = probe(1 + 2 ** -13, 1 - 2 ** -13, -1) !== 0;
  }
  const memory = new Memory(instance.exports);
  let place = 0;
  if (WEIGHTS !== null) {
    const content = await bytes(weights ?? new URL(WEIGHTS, import.meta.url));
    if (content.byteLength !== WEIGHTS_BYTES) {
      const found = `${content.byteLength} bytes`;
      throw new ModelError(`the weights have ${WEIGHTS_BYTES} bytes, found ${found}`);
    }
    place = memory.take(WEIGHTS_BYTES);
    new Uint8Array(memory.buffer, place, WEIGHTS_BYTES).set(new Uint8Array(content));
  }
  for (const table of Object.values(FUNCTIONS)) {
    for (const tensor of table.inputs) if (tensor.kept) memory.keep(tensor);
  }
  const functions = {};
  for (const [name, table] of Object.entries(FUNCTIONS)) {
    functions[name] = new Compiled(instance.exports, memory, name, table, place);
  }
  return new Model(build.cpu, fuses, instance.exports.memory, functions);
}

class Model {
  constructor(cpu, fuses, memory, functions) {
    Object.assign(this, { cpu, fuses, memory, functions, main: Object.values(functions)[0] });
  }
  get inputs() { return this.main.inputs; }
  get outputs() { return this.main.outputs; }
  get sizes() { return this.main.sizes; }
  resize(sizes) { this.main.resize(sizes); }
  run(inputs) { return this.main.run(inputs); }
}

/** The memory after that of the module, which only grows between calls. */
class Memory {
  constructor(exports) {
    this.memory = exports.memory;
    this.end = up(Number(exports.__heap_base.value));
    this.kept = new Map();
  }
  get buffer() { return this.memory.buffer; }
  /** The address of `size` bytes, or of more if `wanted` and there are as many. */
  take(size, wanted = size) {
    const start = this.end;
    for (const bytes of new Set([wanted, size])) {
      const missing = Math.ceil((start + bytes - this.buffer.byteLength) / PAGE);
      try {
        if (missing > 0) this.memory.grow(missing);
        this.end = up(start + bytes);
        return start;
      } catch {}
    }
    throw new ModelError(`the engine has no memory for ${size} bytes`);
  }
  /** The address of an input that functions write, which all that name it alike share. */
  keep(tensor) {
    const shape = tensor.shape({});
    const key = `${tensor.name}: ${tensor.dtype}[${shape}]`;
    if (!this.kept.has(key)) {
      this.kept.set(key, this.take(count(shape) * tensor.array.BYTES_PER_ELEMENT + 1));
    }
    return this.kept.get(key);
  }
}

/** A function of the model, with memory for its inputs, its outputs and its workspace. */
class Compiled {
  #exports; #memory; #table; #weights; #name;
  #views = null; #start = 0; #end = 0; #places = {}; #workspace = 0; #bytes = 0; #kept = {};

  constructor(exports, memory, name, table, weights) {
    this.#exports = exports;
    this.#memory = memory;
    this.#table = table;
    this.#weights = weights;
    this.#name = name;
    this.sizes = null;
    for (const tensor of table.inputs) {
      if (tensor.kept) this.#kept[tensor.name] = memory.keep(tensor);
    }
    if (table.sizes.length === 0) this.resize({});
  }

  resize(given) {
    const table = this.#table;
    const sizes = {};
    for (const name of table.sizes) {
      sizes[name] = given[name];
      if (!Number.isSafeInteger(sizes[name])) {
        throw new ModelError(`${this.#name}: the size ${name} is an integer, found ${sizes[name]}`);
      }
    }
    if (this.#fit(sizes)) return;
    // The fields come first: the module computes the bytes of its workspace from them.
    const fields = up(table.inputFields[""]) + up(table.outputFields[""]);
    this.#reserve(fields);
    let end = fields;
    const places = {};
    try {
      this.#write(sizes, {}, 0);
      this.#bytes = Number(this.#exports[`${table.symbol}_workspace`](this.#start));
      if (this.#bytes < 0) throw this.#error(this.#bytes);
      for (const tensor of [...table.inputs, ...table.outputs]) {
        if (tensor.sameAs !== undefined || tensor.kept) continue;
        places[tensor.name] = end;
        end += up(count(tensor.shape(sizes)) * tensor.array.BYTES_PER_ELEMENT + 1);
      }
      this.#reserve(end + this.#bytes);
    } catch (error) {
      this.sizes = null; // the fields are those of other sizes
      throw error;
    }
    this.#workspace = this.#start + end;
    this.#places = { ...this.#kept };
    for (const name in places) this.#places[name] = this.#start + places[name];
    this.sizes = sizes;
    this.#write(this.sizes, this.#places, this.#bytes);
    this.#views = null;
  }

  get inputs() { return this.#view().inputs; }
  get outputs() { return this.#view().outputs; }

  run(inputs = {}) {
    const known = this.#table.inputs;
    for (const name of Object.keys(inputs)) {
      if (!known.some((tensor) => tensor.name === name)) {
        const names = known.map((tensor) => tensor.name).join(", ");
        throw new ModelError(`${this.#name} has no input ${name}; inputs are ${names}`);
      }
    }
    const sizes = this.#sizesOf(inputs);
    const missing = known.filter(({ name, kept }) => inputs[name] === undefined && !kept);
    const stay = this.#fit(sizes) ? {} : this.#copies(missing); // new sizes replace the memory
    this.resize(sizes);
    const [given, views] = [{ ...inputs, ...stay }, this.inputs];
    for (const tensor of known) {
      const { name } = tensor;
      if (given[name] !== undefined) this.#fill(tensor, given[name], views[name]);
    }
    this.runInPlace();
    const outputs = {};
    for (const tensor of this.#table.outputs) {
      const view = this.outputs[tensor.name];
      outputs[tensor.name] = tensor.sameAs in this.#kept ? view : shaped(view.slice(), view.shape);
    }
    return outputs;
  }

  /** Whether the memory is for these sizes. */
  #fit(sizes) {
    const same = (name) => sizes[name] === this.sizes[name];
    return this.sizes !== null && this.#table.sizes.every(same);
  }

  /** Copies of inputs, by name. */
  #copies(tensors) {
    if (this.sizes === null && tensors.length > 0) {
      throw new ModelError(`${this.#name}: the input ${tensors[0].name} is missing`);
    }
    return Object.fromEntries(tensors.map(({ name }) => [name, this.inputs[name].slice()]));
  }

  runInPlace() {
    if (this.sizes === null) {
      throw new ModelError(`${this.#name}: call resize with ${this.#table.sizes.join(", ")} first`);
    }
    const outputs = this.#start + up(this.#table.inputFields[""]);
    const status = this.#exports[this.#table.symbol](this.#start, outputs, this.#workspace);
    if (status !== 0) throw this.#error(status, outputs);
    if (this.#table.outputs.some((tensor) => tensor.measured)) this.#views = null;
  }

  /** The sizes of an output that depend on data, which the last call has stored. */
  #measured({ name, shape }) {
    const outputs = this.#start + up(this.#table.inputFields[""]);
    const view = new DataView(this.#memory.buffer, outputs + this.#table.outputFields[`${name}_shape`]);
    return shape(this.sizes).map((_, axis) => Number(view.getBigInt64(8 * axis, true)));
  }

  /** Have so many bytes; they stay where they are if nothing follows them. */
  #reserve(size) {
    const present = this.#end - this.#start;
    if (size <= present) return;
    const { end } = this.#memory;
    if (present > 0 && this.#end === end) this.#memory.end = this.#start;
    try {
      this.#start = this.#memory.take(size, Math.max(size, 2 * present));
    } catch (error) {
      this.#memory.end = end;
      throw error;
    }
    this.#end = this.#memory.end;
  }

  /** Store the fields of both structs. */
  #write(sizes, places, workspace) {
    const view = new DataView(this.#memory.buffer);
    const table = this.#table;
    for (const name in table.inputFields) {
      const place = this.#start + table.inputFields[name];
      if (name === "weights") view.setUint32(place, this.#weights, true);
      else if (name === "weights_bytes") view.setBigInt64(place, BigInt(WEIGHTS_BYTES), true);
      else if (name === "threads") view.setUint32(place, 0, true);
      else if (name === "workspace_bytes") view.setBigInt64(place, BigInt(workspace), true);
      else if (name in sizes) view.setBigInt64(place, BigInt(sizes[name]), true);
      else if (name !== "") view.setUint32(place, places[name] ?? 0, true);
    }
    const outputs = this.#start + up(table.inputFields[""]);
    for (const name in places) {
      const place = table.outputFields[name];
      if (place !== undefined) view.setUint32(outputs + place, places[name], true);
    }
    for (const tensor of table.outputs) {
      if (!tensor.measured || tensor.sameAs !== undefined) continue;
      const place = outputs + table.outputFields[`${tensor.name}_shape`];
      tensor.shape(sizes).forEach((_, axis) => view.setBigInt64(place + 8 * axis, 0n, true));
    }
  }

  /** The sizes that follow from shapes of inputs, and from their lengths; others are as before. */
  #sizesOf(inputs) {
    const sizes = { ...this.sizes };
    const found = {};
    const given = this.#table.inputs.filter((tensor) => inputs[tensor.name]?.shape !== undefined);
    for (const tensor of given) {
      const { shape } = inputs[tensor.name];
      if (shape.length !== tensor.shape({}).length) continue; // #fill reports it
      tensor.sizes?.forEach((name, axis) => {
        if (name !== null) found[name] ??= shape[axis];
      });
    }
    for (const tensor of this.#table.inputs) {
      const value = inputs[tensor.name];
      const missing = [...new Set(tensor.sizes?.filter((name) => name && !(name in found)))];
      if (value?.length === undefined || value.shape !== undefined || missing.length !== 1) continue;
      const one = count(tensor.shape({ ...found, [missing[0]]: 1 }));
      if (one > 0 && value.length % one === 0) found[missing[0]] = value.length / one;
    }
    Object.assign(sizes, found);
    for (const name of this.#table.sizes) {
      if (sizes[name] === undefined) {
        const hint = `pass { data, shape }, or call resize({ ${name} })`;
        throw new ModelError(`${this.#name}: the size ${name} is not known; ${hint}`);
      }
    }
    return sizes;
  }

  #fill(tensor, given, view) {
    const data = given?.data ?? given;
    const shape = tensor.shape(this.sizes);
    const label = `${tensor.name}: ${tensor.dtype}[${shape.join(", ")}]`;
    if (!(data instanceof tensor.array)) {
      const found = data?.constructor?.name ?? typeof data;
      throw new ModelError(`${label} is a ${tensor.array.name}, found ${found}`);
    }
    const found = given.shape === undefined ? shape : Array.from(given.shape);
    if (found.join() !== shape.join()) {
      throw new ModelError(`${label} is expected, found the shape [${found.join(", ")}]`);
    }
    if (data.length !== view.length) {
      throw new ModelError(`${label} has ${view.length} elements, found ${data.length}`);
    }
    view.set(data);
  }

  /** Typed arrays of the memory, which are made anew after it grew. */
  #view() {
    if (this.sizes === null) {
      throw new ModelError(`${this.#name}: call resize with ${this.#table.sizes.join(", ")} first`);
    }
    const { buffer } = this.#memory;
    if (this.#views === null || this.#views.buffer !== buffer) {
      const made = (tensors, known) => {
        const views = {};
        for (const tensor of tensors) {
          const own = tensor.measured && tensor.sameAs === undefined;
          const shape = own ? this.#measured(tensor) : tensor.shape(this.sizes);
          const place = this.#places[tensor.name];
          views[tensor.name] = tensor.sameAs !== undefined
            ? (known[tensor.sameAs] ?? views[tensor.sameAs])
            : shaped(new tensor.array(buffer, place, count(shape)), shape);
        }
        return views;
      };
      const inputs = made(this.#table.inputs, {});
      this.#views = { buffer, inputs, outputs: made(this.#table.outputs, inputs) };
    }
    return this.#views;
  }

  #error(status, outputs) {
    const memory = new Uint8Array(this.#memory.buffer);
    const start = this.#exports[`${PREFIX}_error`](status);
    const text = new TextDecoder().decode(memory.slice(start, memory.indexOf(0, start)));
    if (outputs === undefined) return new ModelError(`${this.#name}: ${text}`, status);
    const view = new DataView(this.#memory.buffer, outputs);
    const fields = this.#table.outputFields;
    const index = Number(view.getBigInt64(fields.failed_index, true));
    const size = Number(view.getBigInt64(fields.failed_size, true));
    const about = size > 0 ? ` (index ${index}, size ${size})` : "";
    return new ModelError(`${this.#name}: ${text}${about}`, status, index, size);
  }
}

const count = (shape) => shape.reduce((total, size) => total * size, 1);

const shaped = (array, shape) => Object.defineProperty(array, "shape", { value: shape });

async function bytes(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
    return ArrayBuffer.isView(source)
      ? source.buffer.slice(source.byteOffset, source.byteOffset + source.byteLength)
      : source;
  }
  // In node, a mention of Response takes 40 ms, since it loads what fetches.
  const isPlace = typeof source === "string" || source instanceof URL;
  if (!isPlace && typeof Response !== "undefined" && source instanceof Response) {
    if (!source.ok) throw new ModelError(`${source.url} is not there: ${source.status}`);
    return source.arrayBuffer();
  }
  const url = new URL(source, import.meta.url);
  if (url.protocol === "file:" && typeof process !== "undefined") {
    const { readFile } = await import("node:fs/promises");
    return bytes(await readFile(url));
  }
  return bytes(await fetch(url));
}

async function compiled(source) {
  if (source instanceof WebAssembly.Module) return source;
  const content = await bytes(source);
  try {
    return await WebAssembly.compile(content);
  } catch (error) {
    throw new ModelError(`this is no module of the model: ${error.message}`);
  }
}
