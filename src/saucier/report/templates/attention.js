"use strict";
// The views of attention. Letters: a an attention, h a head's place in it, q a query (row), k a key (column).
(() => {
const byId = name => document.getElementById(name);
const data = JSON.parse(byId("data").textContent);
const MOST_LINES = 6000, FAINT = 0.05, NEAR_NOTHING = 0.004;
const shown = {view: "heads", number: 0, heads: new Set(), head: 0, token: 0, kept: null};

function numbers(text, kind) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  return new kind(bytes.buffer);
}
for (const one of data.attentions) {
  one.packed = numbers(one.weights, Uint16Array);
  one.names = {rows: data.tokens[one.rows], columns: data.tokens[one.columns]};
  one.height = one.names.rows.names.length;
  one.width = one.names.columns.names.length;
  for (const part of ["queries", "keys", "bias"])
    if (one.softmax && one.softmax[part]) one.softmax[part].numbers = numbers(one.softmax[part].values, Int16Array);
}
const now = () => data.attentions[shown.number];
const weight = (a, h, q, k) => a.packed[(h * a.height + q) * a.width + k] / 65535;
const percent = value => (100 * value).toFixed(value < 0.0995 ? 1 : 0) + " %";
const tone = (a, h) => `hsl(${Math.round(360 * h / a.heads.length + 10) % 360} 62% 47%)`;
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function make(kind, values = {}, text = "") {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(values)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

/* ---- what is chosen ---- */
function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => make("option", {value}, text)));
  select.value = chosen;
}
function fillControls() {
  const a = now(), sides = [...new Set(data.attentions.map(one => one.side))];
  fill(byId("side"), sides.map(side => [side, side]), a.side);
  fill(byId("layer"), data.attentions.filter(one => one.side === a.side).map(one => [one.layer, one.layer]), a.layer);
  fill(byId("head"), a.heads.map((head, place) => [place, head]), shown.head);
  fill(byId("token"), a.names.rows.names.map((name, place) => [place, `${place} ${name}`]), shown.token);
  byId("side").parentElement.hidden = sides.length < 2;
  byId("layer").parentElement.hidden = shown.view === "model";
  byId("head-choice").hidden = byId("token-choice").hidden = shown.view !== "neuron";
  const two = [a.names.rows, a.names.columns].every(one => one.segments.includes(1));
  byId("pair-choice").hidden = shown.view !== "heads" || !two;
  if (!two) byId("pairs").value = "";
}
function choose(side, layer) {
  const before = now(), same = one => one.side === side;
  let found = data.attentions.findIndex(one => same(one) && one.layer === layer);
  if (found < 0) found = data.attentions.findIndex(same);
  shown.number = found;
  const a = now();
  if (before.heads.length !== a.heads.length || !shown.heads.size) shown.heads = new Set(a.heads.keys());
  shown.head = Math.min(shown.head, a.heads.length - 1);
  shown.token = Math.min(shown.token, a.height - 1);
  if (before.side !== side) shown.kept = null;
}
function draw() {
  for (const view of ["heads", "model", "neuron"]) {
    byId(`view-${view}`).hidden = shown.view !== view;
    byId(`tab-${view}`).setAttribute("aria-selected", shown.view === view);
    byId(`tab-${view}`).tabIndex = shown.view === view ? 0 : -1;
  }
  fillControls();
  byId("said").textContent = "";
  ({heads: drawHeads, model: drawModel, neuron: drawNeurons})[shown.view]();
}
function go(view, side, layer, head) {
  choose(side, layer);
  shown.view = view;
  const place = now().heads.indexOf(head);
  if (place >= 0) [shown.head, shown.heads] = [place, new Set([place])];
  draw();
}

/* ---- head view ---- */
function drawHeads() {
  const a = now();
  byId("chips").replaceChildren(...a.heads.map((head, h) => {
    const chip = make("button", {class: "head", "aria-pressed": shown.heads.has(h), title: `head ${head}`}, head);
    chip.style.setProperty("--tone", tone(a, h));
    chip.addEventListener("click", event => {
      if (event.shiftKey) shown.heads = new Set([h]);
      else if (!shown.heads.delete(h)) shown.heads.add(h);
      drawHeads();
      byId("chips").children[h].focus();
    });
    return chip;
  }), ...[["all", () => a.heads.keys()], ["none", () => []]].map(([name, heads]) => {
    const chip = make("button", {class: "all"}, name);
    chip.addEventListener("click", () => { shown.heads = new Set(heads()); drawHeads(); });
    return chip;
  }));
  for (const side of ["rows", "columns"]) {
    const names = a.names[side];
    byId(side).replaceChildren(...names.names.map((name, place) => make("li", {
      tabindex: place ? -1 : 0, title: name, "data-place": place,
      class: (names.special[place] ? "special " : "") + (names.segments[place] ? "second" : "")}, name)));
  }
  point(shown.kept);
}
function allowed(a, q, k) {
  const pair = byId("pairs").value;
  return !pair || pair === `${a.names.rows.segments[q]}${a.names.columns.segments[k]}`;
}
function listLines(a, at) {
  const least = at ? NEAR_NOTHING : FAINT, found = [];
  const rows = at && at.side === "rows" ? [at.place] : a.names.rows.names.keys();
  for (const q of rows) {
    const columns = at && at.side === "columns" ? [at.place] : a.names.columns.names.keys();
    for (const k of columns) {
      if (!allowed(a, q, k)) continue;
      for (const h of shown.heads) {
        const value = weight(a, h, q, k);
        if (value >= least) found.push({h, q, k, value});
      }
    }
  }
  return found.sort((one, other) => one.value - other.value);
}
function point(at) {
  const a = now(), every = listLines(a, at), svg = byId("lines"), step = 22;
  const lines = every.slice(-MOST_LINES), width = svg.clientWidth || 300;
  svg.setAttribute("height", step * Math.max(a.height, a.width));
  svg.replaceChildren(...lines.map(({h, q, k, value}) => {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const values = {x1: 0, y1: step * (q + 0.5), x2: width, y2: step * (k + 0.5), stroke: tone(a, h),
                    "stroke-opacity": value.toFixed(3), "data-head": a.heads[h], "data-q": q, "data-k": k};
    for (const [name, set] of Object.entries(values)) line.setAttribute(name, set);
    return line;
  }));
  shade(a, at);
  byId("said").textContent = at ? describe(a, at) : lines.length < every.length
    ? `The ${lines.length.toLocaleString("en")} strongest of ${every.length.toLocaleString("en")} lines; choose fewer heads, or a token.` : "";
}
function meanWeights(a, at) {
  const other = at.side === "rows" ? a.width : a.height;
  return Array.from({length: other}, (_, place) => {
    const [q, k] = at.side === "rows" ? [at.place, place] : [place, at.place];
    let sum = 0;
    for (const h of shown.heads) sum += weight(a, h, q, k);
    return shown.heads.size && allowed(a, q, k) ? sum / shown.heads.size : 0;
  });
}
function shade(a, at) {
  for (const side of ["rows", "columns"])
    for (const item of byId(side).children) {
      item.classList.toggle("chosen", Boolean(at) && at.side === side && Number(item.dataset.place) === at.place);
      item.style.background = "";
    }
  if (!at) return;
  const means = meanWeights(a, at), items = byId(at.side === "rows" ? "columns" : "rows").children;
  means.forEach((value, place) => {
    if (value >= NEAR_NOTHING)
      items[place].style.background = `color-mix(in srgb, var(--accent) ${Math.round(70 * value)}%, transparent)`;
  });
}
function describe(a, at) {
  const [own, other] = at.side === "rows" ? [a.names.rows, a.names.columns] : [a.names.columns, a.names.rows];
  const best = meanWeights(a, at).map((value, place) => [value, place]).sort((one, two) => two[0] - one[0]).slice(0, 5);
  const listed = best.filter(([value]) => value > 0).map(([value, place]) => `${other.names[place]} ${percent(value)}`);
  const said = at.side === "rows" ? "attends to" : "is attended to by";
  return `${own.names[at.place]} ${said}: ${listed.join(", ") || "nothing that is shown"}`;
}
for (const side of ["rows", "columns"]) {
  const list = byId(side), place = event => event.target.closest("li") && Number(event.target.closest("li").dataset.place);
  list.addEventListener("mouseover", event => place(event) !== null && point({side, place: place(event)}));
  list.addEventListener("focusin", event => place(event) !== null && point({side, place: place(event)}));
  list.addEventListener("mouseleave", () => point(shown.kept));
  list.addEventListener("focusout", () => point(shown.kept));
  list.addEventListener("click", event => place(event) !== null && keep({side, place: place(event)}));
  list.addEventListener("keydown", event => {
    const at = place(event), moves = {ArrowDown: 1, ArrowUp: -1};
    if (event.key in moves) focusToken(list, at + moves[event.key]);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft")
      focusToken(byId(event.key === "ArrowRight" ? "columns" : "rows"), at);
    else if (event.key === "Enter" || event.key === " ") keep({side, place: at});
    else if (event.key === "Escape") { shown.kept = null; point(null); }
    else return;
    event.preventDefault();
  });
}
function keep(at) {
  const same = shown.kept && shown.kept.side === at.side && shown.kept.place === at.place;
  shown.kept = same ? null : at;
  if (at.side === "rows") shown.token = at.place;
  point(shown.kept);
}
function focusToken(list, place) {
  const item = list.children[Math.max(0, Math.min(place, list.children.length - 1))];
  for (const other of list.children) other.tabIndex = other === item ? 0 : -1;
  item.focus();
}

/* ---- model view ---- */
function paint(canvas, a, h) {
  [canvas.width, canvas.height] = [a.width, a.height];
  const image = new ImageData(a.width, a.height), ink = rgb("--accent");
  for (let place = 0; place < a.width * a.height; place++) {
    const value = a.packed[h * a.width * a.height + place] / 65535;
    image.data.set([...ink, Math.round(255 * Math.sqrt(value))], 4 * place);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}
function rgb(name) {
  const probe = make("i");
  probe.style.color = colour(name);
  document.body.append(probe);
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return found;
}
function drawModel() {
  const a = now(), every = data.attentions.filter(one => one.side === a.side);
  const most = Math.max(...every.map(one => one.heads.length));
  const cell = Math.max(34, Math.min(76, Math.floor((byId("views").clientWidth - 60) / most) - 6));
  byId("grid").style.setProperty("--cell", `${cell}px`);
  const heading = make("tr");
  heading.append(make("th"), ...Array.from({length: most}, (_, h) => make("th", {}, every[0].heads[h] ?? h)));
  byId("grid").tHead.replaceChildren(heading);
  byId("grid").tBodies[0].replaceChildren(...every.map(one => {
    const row = make("tr");
    row.append(make("th", {}, one.layer), ...one.heads.map((head, h) => {
      const canvas = make("canvas"), cell = make("td");
      const pressed = one === a && h === shown.head;
      const button = make("button", {"aria-pressed": pressed, "data-layer": one.layer, "data-head": head,
                                     "aria-label": `layer ${one.layer}, head ${head}: ${roleOf(one, head)}`,
                                     title: `layer ${one.layer}, head ${head}: ${roleOf(one, head)}`});
      paint(canvas, one, h);
      button.append(canvas);
      button.addEventListener("click", () => {
        choose(one.side, one.layer);
        shown.head = h;
        drawModel();
        document.querySelector('#grid [aria-pressed="true"]').focus();
      });
      cell.append(button);
      return cell;
    }));
    return row;
  }));
  drawMap();
}
function roleOf(a, head) {
  const row = document.querySelector(`#roles tr[data-side="${a.side}"][data-layer="${a.layer}"][data-head="${head}"]`);
  return row ? `${row.cells[3].textContent} ${row.cells[4].textContent}` : "";
}
function drawMap() {
  const a = now(), canvas = byId("map"), h = shown.head, head = a.heads[h];
  const room = Math.min(640, byId("views").clientWidth - 8), ratio = window.devicePixelRatio || 1;
  const label = Math.min(120, Math.max(40, 14 + 7.4 * Math.max(...[...a.names.rows.names, ...a.names.columns.names].map(one => one.length))));
  const step = Math.max(3, Math.min(20, (room - label) / a.width));
  const [width, height] = [label + step * a.width, label + step * a.height];
  [canvas.width, canvas.height] = [width * ratio, height * ratio];
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = `${Math.min(12, step)}px ${colour("--mono")}`;
  pen.textBaseline = "middle";
  const short = name => name.length > 14 ? name.slice(0, 13) + "…" : name;
  if (step >= 8) {
    pen.fillStyle = colour("--soft");
    pen.textAlign = "right";
    a.names.rows.names.forEach((name, q) => pen.fillText(short(name), label - 5, label + step * (q + 0.5)));
    pen.textAlign = "left";
    a.names.columns.names.forEach((name, k) => {
      pen.save();
      pen.translate(label + step * (k + 0.5), label - 5);
      pen.rotate(-Math.PI / 2);
      pen.fillText(short(name), 0, 0);
      pen.restore();
    });
  }
  pen.fillStyle = colour("--track");
  pen.fillRect(label, label, step * a.width, step * a.height);
  pen.fillStyle = colour("--accent");
  for (let q = 0; q < a.height; q++)
    for (let k = 0; k < a.width; k++) {
      pen.globalAlpha = Math.sqrt(weight(a, h, q, k));
      pen.fillRect(label + step * k, label + step * q, step - 0.5, step - 0.5);
    }
  pen.globalAlpha = 1;
  canvas.onmousemove = event => {
    const q = Math.floor((event.offsetY - label) / step), k = Math.floor((event.offsetX - label) / step);
    const inside = q >= 0 && k >= 0 && q < a.height && k < a.width;
    byId("said").textContent = inside
      ? `${a.names.rows.names[q]} → ${a.names.columns.names[k]}: ${percent(weight(a, h, q, k))}` : "";
  };
  byId("map-title").textContent = `${a.side}, layer ${a.layer}, head ${head}: ${roleOf(a, head)}`;
  canvas.setAttribute("aria-label", byId("map-title").textContent);
}

/* ---- neuron view ---- */
function vector(part, group, place, width) {
  const from = (group * (part.numbers.length / part.factors.length / width) + place) * width;
  return Array.from(part.numbers.subarray(from, from + width), value => value * part.factors[group]);
}
function strip(canvas, values, largest) {
  [canvas.width, canvas.height] = [values.length, 1];
  const image = new ImageData(values.length, 1), plus = rgbNow.plus, minus = rgbNow.minus;
  values.forEach((value, place) => image.data.set(
    [...(value >= 0 ? plus : minus), Math.round(255 * Math.min(1, Math.sqrt(Math.abs(value) / (largest || 1))))], 4 * place));
  canvas.getContext("2d").putImageData(image, 0, 0);
}
const rgbNow = {};
const largestOf = rows => Math.max(...rows.flat().map(Math.abs), 1e-9);
function drawNeurons() {
  const a = now(), h = shown.head, q = shown.token, inner = a.softmax, body = byId("neurons").tBodies[0];
  const reason = !inner ? `Queries and keys are not shown: this attention (${a.kernel}) is no plain softmax of q · k.`
    : inner.other.includes(q) ? "This token has queries and keys of its own maps (a global token), which are not shown." : "";
  byId("neuron-reason").textContent = reason;
  byId("neurons").hidden = Boolean(reason);
  if (reason) return;
  [rgbNow.plus, rgbNow.minus] = [rgb("--second"), rgb("--accent")];
  const group = Math.floor(h * inner.keys.factors.length / inner.queries.factors.length);
  const query = vector(inner.queries, h, q, inner.width);
  const keys = a.names.columns.names.map((_, k) => vector(inner.keys, group, k, inner.width));
  const products = keys.map(key => key.map((value, place) => value * query[place]));
  const tops = [largestOf(keys), largestOf(products)];
  const values = a.names.columns.names.map((_, k) => weight(a, h, q, k)), strongest = values.indexOf(Math.max(...values));
  byId("asking").textContent = a.names.rows.names[q];
  strip(byId("query"), query, largestOf([query]));
  for (const cell of document.querySelectorAll("#neurons .bias")) cell.hidden = !inner.bias;
  body.replaceChildren(...a.names.columns.names.map((name, k) => {
    const seen = values[k] > 0, dot = products[k].reduce((sum, value) => sum + value, 0);
    const row = make("tr", {class: seen ? k === strongest ? "strongest" : "" : "unseen"});
    const strips = [keys[k], products[k]].map((numbers, which) => {
      const cell = make("td"), canvas = make("canvas", {class: "strip"});
      strip(canvas, numbers, tops[which]);
      cell.append(canvas);
      return cell;
    });
    const cells = [make("td", {class: "number dot"}, dot.toFixed(2)),
                   make("td", {class: "number scaled"}, (dot * inner.scale).toFixed(2))];
    if (inner.bias) {
      const added = vector(inner.bias, h, q, a.width)[k];
      cells.push(make("td", {class: "number bias"}, seen ? (added < 0 ? "" : "+") + added.toFixed(2) : ""));
    }
    const meter = make("div", {class: "meter"}), bar = make("i");
    bar.style.setProperty("--share", values[k].toFixed(5));
    meter.append(bar, make("span", {}, seen ? percent(values[k]) : "not seen"));
    const last = make("td");
    last.append(meter);
    row.append(make("td", {title: name}, name), ...strips, ...cells, last);
    return row;
  }));
}

/* ---- start ---- */
const VIEWS = ["heads", "model", "neuron"];
for (const view of VIEWS) {
  byId(`tab-${view}`).addEventListener("click", () => { shown.view = view; draw(); });
  byId(`tab-${view}`).addEventListener("keydown", event => {
    const move = {ArrowRight: 1, ArrowLeft: 2}[event.key];
    if (!move) return;
    shown.view = VIEWS[(VIEWS.indexOf(shown.view) + move) % 3];
    draw();
    byId(`tab-${shown.view}`).focus();
  });
}
byId("side").addEventListener("change", event => { choose(event.target.value, 0); draw(); });
byId("layer").addEventListener("change", event => { choose(now().side, Number(event.target.value)); draw(); });
byId("head").addEventListener("change", event => { shown.head = Number(event.target.value); draw(); });
byId("token").addEventListener("change", event => { shown.token = Number(event.target.value); draw(); });
byId("pairs").addEventListener("change", () => point(shown.kept));
byId("to-heads").addEventListener("click", () => go("heads", now().side, now().layer, now().heads[shown.head]));
byId("to-neuron").addEventListener("click", () => go("neuron", now().side, now().layer, now().heads[shown.head]));
for (const row of document.querySelectorAll("#roles tbody tr")) {
  const {side, layer, head} = row.dataset, button = make("button", {title: "open in head view"}, head);
  button.addEventListener("click", () => { go("heads", side, Number(layer), Number(head)); byId("views").scrollIntoView(); });
  row.cells[2].replaceChildren(button);
}
window.addEventListener("resize", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
shown.heads = new Set(now().heads.keys());
byId("views").hidden = false;
draw();
})();
