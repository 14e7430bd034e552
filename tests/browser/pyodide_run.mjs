// Runs a program in Pyodide, as the page of the documents does: node pyodide_run.mjs FOLDER WHEEL SCRIPT PROGRAM.
// FOLDER has the npm package `pyodide`, and packages of Pyodide where its address is out of reach.
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, wheel, script, program] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`));
const { boot, run } = await import(pathToFileURL(script));
const place = `/tmp/${basename(wheel)}`;

async function load(options) {
  const python = await loadPyodide(options);
  python.FS.writeFile(place, new Uint8Array(readFileSync(wheel)));
  return python;
}

try {
  const python = await boot(load, { indexURL: folder }, `emfs:${place}`);
  run(python, readFileSync(program, "utf8"), (text) => process.stdout.write(text));
} catch (error) {
  // The message of an abort has the whole text of the module.
  process.stderr.write(String(error.message ?? error).slice(-2000));
  process.exitCode = 1;
}
