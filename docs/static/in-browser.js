// Runs Python cells of a page in the browser: Pyodide from its public address, relaxpy from beside the page.
const PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/";
const NEEDED = ["numpy", "ml-dtypes", "rich", "typing-extensions", "micropip"];

// Load Pyodide, and install relaxpy from the address of its wheel. Packages of Pyodide come first:
// the versions that it has are those that its wheels are built for.
export async function boot(loadPyodide, options, wheel) {
  const python = await loadPyodide(options);
  await python.loadPackage(NEEDED);
  await python.pyimport("micropip").install(wheel);
  return python;
}

let count = 0;

// Run a program, and pass what it prints to `show`, with the traceback if it fails. It is a file,
// since relaxpy reads the source of functions.
export function run(python, program, show) {
  const name = `cell${++count}.py`;
  python.FS.writeFile(name, program);
  python.setStdout({ batched: (line) => show(`${line}\n`) });
  python.setStderr({ batched: (line) => show(`${line}\n`) });
  try {
    python.runPython(`import runpy; runpy.run_path("${name}", run_name="__main__"); None`);
  } catch (error) {
    show(error.message);
  }
}

// Let the first program of the page be changed and run.
async function start(place) {
  const shown = place.querySelector("pre");
  const editor = document.createElement("textarea");
  const button = document.createElement("button");
  const output = document.createElement("pre");
  editor.value = shown.textContent.trimEnd();
  editor.rows = editor.value.split("\n").length + 1;
  editor.spellcheck = false;
  editor.style.cssText = "width: 100%; font-family: monospace; font-size: 0.875em; tab-size: 4";
  button.textContent = "Run";
  place.replaceChildren(editor, button, output);
  let python = null;
  button.addEventListener("click", async () => {
    button.disabled = true;
    output.textContent = python ? "" : "Loading Python, NumPy and relaxpy …\n";
    try {
      if (!python) {
        const { loadPyodide } = await import(`${PYODIDE}pyodide.mjs`);
        const wheels = new URL("../wheels/", import.meta.url);
        const name = await (await fetch(new URL("name.txt", wheels))).text();
        python = await boot(loadPyodide, { indexURL: PYODIDE }, new URL(name.trim(), wheels).href);
        output.textContent = "";
      }
      run(python, editor.value, (text) => output.append(text));
    } catch (error) {
      output.append(`${error.message ?? error}\n`);
    }
    button.disabled = false;
  });
}

if (globalThis.document) {
  const place = document.querySelector("div.highlight-python");
  if (place) start(place);
}
