"""Trains the digits model, and writes it as a page that reads what is drawn on it.

The page has all of it, so that it works from any address, also that of a file.
"""

import base64
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1] / "digits"))

import data  # noqa: E402
import train  # noqa: E402
from model import MODULE  # noqa: E402

import relaxpy  # noqa: E402
from relaxpy import relax  # noqa: E402

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
digits = data.load()
weights = train.train(digits)
model = relax.transform.BindParams("main", weights)(MODULE)
best, plain, script, types = relaxpy.compile(model).export(folder / "digits.wasm")

# One picture of each digit, as whole numbers from 0 to 16.
samples = [(16 * digits.x_test[digits.y_test == n][0]).astype(int).tolist() for n in range(10)]
modules = {"relaxed-simd": best, "simd128": plain}
text = {cpu: base64.b64encode(file.read_bytes()).decode() for cpu, file in modules.items()}
# Only the module that the engine takes is read, and by a loop: a function for each letter is slow.
read = """(text) => {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let n = 0; n < letters.length; n++) bytes[n] = letters.charCodeAt(n);
  return bytes;
}"""
listed = ", ".join(f'get "{cpu}"() {{ return read("{each}"); }}' for cpu, each in text.items())
where = f"((read) => ({{ wasm: {{ {listed} }} }}))({read})"
page = (FOLDER / "page.html").read_text("utf-8")
for old, new in (
    ('import { load } from "./digits.js";', script.read_text("utf-8").replace("export ", "")),
    ("/* samples */ []", json.dumps(samples)),
    ("/* where */", where),
):
    assert page.count(old) == 1
    page = page.replace(old, new)
(folder / "digits.html").write_text(page, encoding="utf-8")
print(folder / "digits.html")
