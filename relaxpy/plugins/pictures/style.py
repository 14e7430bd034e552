"""The colours of pictures, light and dark, and the scripts that pages run."""

from __future__ import annotations

from typing import Final

#: Name, light, dark.
_COLOURS: Final = (
    ("paper", "#ffffff", "#16181d"),
    ("ink", "#1d2330", "#e6e8ee"),
    ("soft", "#5d6678", "#9aa3b5"),
    ("line", "#8b94a6", "#717a8c"),
    ("operator", "#f1f3f7", "#262a33"),
    ("kernel", "#e3edfb", "#1d2f4a"),
    ("source", "#e9f4ea", "#1e3325"),
    ("frame", "#f8f9fb", "#1b1e25"),
    ("branch", "#fdf6e3", "#2e2815"),
    ("loop", "#f3ecfb", "#2b2140"),
    ("repeat", "#e6f6f5", "#15312f"),
    ("red", "#c62828", "#ff6b60"),
    ("green", "#1b7f3b", "#4fc26f"),
)
#: The backgrounds of fused groups, light and dark, in turn.
FUSED: Final = (
    ("#fde8d7", "#43290f"),
    ("#fbe3ec", "#43192b"),
    ("#fdf3c4", "#3d3407"),
    ("#e4f3d3", "#26380f"),
    ("#dff1fb", "#0f3345"),
    ("#ece5fc", "#2c2050"),
)


def _variables(column: int) -> str:
    pairs = [(row[0], row[column]) for row in _COLOURS]
    pairs += [(f"fused{i}", row[column - 1]) for i, row in enumerate(FUSED)]
    return ";".join(f"--{name}:{colour}" for name, colour in pairs)


_RULES: Final = """
.relaxpy-picture{background:var(--paper);color:var(--ink);max-width:none;
font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:12px}
.relaxpy-picture text{fill:var(--ink);white-space:pre}
.relaxpy-picture .small{font-size:10px;fill:var(--soft)}
.relaxpy-picture g:not([data-closed])>.short{display:none}
.relaxpy-code{font-size:10px;white-space:pre;fill:var(--ink)}
.relaxpy-picture rect{fill:var(--operator);stroke:var(--line);stroke-width:1}
.relaxpy-picture .kernel>rect,.relaxpy-picture .packed>rect{fill:var(--kernel)}
.relaxpy-picture .source>rect{fill:var(--source);rx:11px}
.relaxpy-picture .input>rect,.relaxpy-picture .reference>rect{stroke-dasharray:3 2}
.relaxpy-picture .frame>rect{fill:var(--frame)}
.relaxpy-picture .block>rect{stroke-dasharray:5 3}
.relaxpy-picture .branch>rect{fill:var(--branch)}
.relaxpy-picture .loop>rect{fill:var(--loop)}
.relaxpy-picture .repeat>rect{fill:var(--repeat);stroke-width:2}
.relaxpy-picture .result>rect{fill:none;stroke-width:1.5}
.relaxpy-picture .uses path{fill:none;stroke:var(--line);stroke-width:1.2}
.relaxpy-picture .tip{fill:var(--line)}
.relaxpy-picture .grid{fill:none;stroke:var(--line);stroke-width:.5;stroke-dasharray:2 3}
.relaxpy-picture .bar rect{fill:var(--line);fill-opacity:.4;stroke:none;
shape-rendering:crispEdges}
.relaxpy-picture .bar .whole{fill-opacity:0}
.relaxpy-picture .bar:hover rect{fill:var(--green)}
.relaxpy-picture .uses .used{stroke:var(--red);stroke-width:1.5}
.relaxpy-picture .total{font-weight:bold}
.relaxpy-picture .point circle{fill:var(--green);fill-opacity:.6;stroke:var(--ink)}
.relaxpy-picture .head{cursor:pointer}
.relaxpy-picture .head:hover text,.relaxpy-picture a:hover text{text-decoration:underline}
.relaxpy-picture [data-closed]>.inside{display:none}
.relaxpy-picture .kept>rect,.relaxpy-picture .kept>text,.relaxpy-picture .kept>a,
.relaxpy-picture .kept>.head{opacity:.5}
.relaxpy-picture .added>rect{stroke:var(--green);stroke-width:2.5}
.relaxpy-picture .removed>rect{stroke:var(--red);stroke-width:2;stroke-dasharray:4 3}
.relaxpy-picture .removed>text,.relaxpy-picture .removed>a>text{text-decoration:line-through}
.relaxpy-picture .faulty>rect{stroke:var(--red);stroke-width:3}
.relaxpy-picture .rule{fill:var(--red);font-size:10px;font-weight:bold}
"""


def style() -> str:
    """The style sheet: dark if the reader prefers it, or the notebook says so."""
    light, dark = _variables(1), _variables(2)
    root = ".relaxpy-picture"
    fused = "".join(f"{root} .fused{i}>rect{{fill:var(--fused{i})}}" for i in range(len(FUSED)))
    return (
        f"{root}{{{light}}}"
        f"@media(prefers-color-scheme:dark){{{root}{{{dark}}}}}"
        f'[data-jp-theme-light="true"] {root},body.vscode-light {root}{{{light}}}'
        f'[data-jp-theme-light="false"] {root},body.vscode-dark {root}{{{dark}}}'
        f"{_RULES}{fused}"
    )


#: Positions are computed as by `place` of the layout.
SCRIPT: Final = """
for (const svg of document.querySelectorAll('svg.relaxpy-picture:not([data-live])')) {
  svg.dataset.live = '';
  const P = JSON.parse(svg.querySelector('metadata').textContent), at = {};
  for (const e of svg.querySelectorAll('[data-i]')) at[e.dataset.i] = e;
  const child = (e, name) => [...e.children].find(c => c.classList.contains(name));
  const isOpen = k => k >= 0 && !('closed' in at[k].dataset) && (P.rows[k] || P.text[k]);
  const size = (k, w, h) => isOpen(k) ? P.text[k] || place(k) : [w, h];
  function curve(path, boxes) {
    let a = boxes[path[0]], d = `M${a.c} ${a.y + a.h}`;
    path.slice(1).forEach((k, i) => {
      const b = boxes[k], m = (a.bottom + b.top) / 2, end = i < path.length - 2 ? b.bottom : b.y;
      d += `V${a.bottom}C${a.c} ${m} ${b.c} ${m} ${b.c} ${b.top}` + (end > b.top ? `V${end}` : '');
      a = b;
    });
    return d;
  }
  function place(g) {
    let y = 0, left = Infinity, right = -Infinity;
    const boxes = {};
    for (const row of P.rows[g]) {
      let bound = -Infinity, shift = 0, tall = 0;
      const found = row.map(([k, w0, h0, c]) => {
        const [w, h] = size(k, w0, h0), x = Math.max(c - w / 2, bound);
        bound = x + w + P.gap;
        shift += (x + w / 2 - c) / row.length;
        tall = Math.max(tall, h);
        return [k, x, w, h];
      });
      for (const [k, x, w, h] of found) {
        boxes[k] = {x: x - shift, y, w, h, top: y, bottom: y + tall};
        left = Math.min(left, x - shift);
        right = Math.max(right, x - shift + w);
      }
      y += tall + P.rowGap;
    }
    for (const [k, b] of Object.entries(boxes)) {
      b.x -= left;
      b.c = b.x + b.w / 2;
      const e = at[k] || at[g + '/' + k];
      if (!e) continue;
      e.setAttribute('transform', `translate(${b.x} ${b.y})`);
      child(e, 'box').setAttribute('width', b.w);
      child(e, 'box').setAttribute('height', b.h);
    }
    const lines = child(child(at[g], 'inside'), 'uses').children;
    (P.paths[g] || []).forEach((path, i) => lines[i].setAttribute('d', curve(path, boxes)));
    return [Math.max(right - left + 2 * P.margin, P.least[g]), y - P.rowGap + P.head + P.margin];
  }
  function toggle(head) {
    const group = head.closest('[data-i]'), open = !('closed' in group.dataset);
    if (open) group.dataset.closed = ''; else delete group.dataset.closed;
    child(head, 'sign').textContent = open ? '\\u25b8' : '\\u25be';
    head.setAttribute('aria-expanded', String(!open));
    const [w, h] = place(0);
    svg.setAttribute('viewBox', `0 0 ${w} ${h}`);
    svg.setAttribute('width', w);
    svg.setAttribute('height', h);
  }
  for (const head of svg.querySelectorAll('.head')) {
    head.addEventListener('click', () => toggle(head));
    head.addEventListener('keydown', event => {
      if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); toggle(head); }
    });
  }
}
"""

#: Puts the documents that images show into the page, which gives them its theme and their tips.
UNFOLD_IMAGES: Final = """
for (const image of document.querySelectorAll('img.relaxpy-image')) {
  const box = document.createElement('div');
  box.style = 'overflow:auto;max-height:90vh';
  const bytes = Uint8Array.from(atob(image.src.split(',')[1]), char => char.charCodeAt(0));
  box.innerHTML = new TextDecoder().decode(bytes);
  image.replaceWith(box);
}
"""
