// The page: what is chosen, and how every part of it shows that.

const $ = (id) => document.getElementById(id);
const state = { file: FILES[0], from: 0, to: Math.max(1, FILES[0] ? FILES[0].size : 1), pick: null, brush: null };

function table(heads, rows, caption) {
  const number = (i) => rows.length > 0 && rows.every((row) => typeof row[i] === "number" || row[i] === null) ? "number" : "";
  const cell = (value, i) => value instanceof Node ? el("td", { "data-head": heads[i] }, value)
    : value === null ? el("td", { "data-head": heads[i], class: number(i) }, el("span", { class: "null" }, "null"))
    : el("td", { "data-head": heads[i], class: typeof value === "number" ? number(i) : "text" }, typeof value === "number" ? whole(value) : value);
  return el("table", { class: "rows" }, caption ? el("caption", { class: "hint" }, caption) : [],
    el("thead", {}, el("tr", {}, heads.map((name, i) => el("th", { scope: "col", class: number(i) }, name)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell)))));
}

/** A long table scrolls in a box of its own, which the keyboard reaches. */
function boxed(box, label) {
  if (box.querySelectorAll("tr").length > 40) {
    box.classList.add("long");
    for (const [name, value] of [["tabindex", 0], ["role", "region"], ["aria-label", label]]) box.setAttribute(name, value);
  }
  return box;
}

function selection() {
  const { brush, file } = state;
  if (!brush) return null;
  if (brush.by === "bytes") return (bin) => bin * file.bin_bytes < brush.to && file.binEnd(bin) > brush.from;
  return (bin) => file.bins.low[bin] !== null && file.bins.low[bin] <= brush.to && file.bins.high[bin] >= brush.from;
}

function show(from, to) {
  const { file } = state, least = Math.min(16, file.size), wide = Math.min(Math.max(to - from, least), file.size) || 1;
  state.from = Math.max(0, Math.min(from, file.size - wide));
  state.to = state.from + wide;
  draw();
}

function zoom(factor, at) {
  const middle = at === undefined ? (state.pick ? state.pick.offset : (state.from + state.to) / 2) : at;
  const kept = middle >= state.from && middle <= state.to ? (middle - state.from) / (state.to - state.from) : 0.5;
  const wide = (state.to - state.from) * factor;
  show(middle - wide * kept, middle - wide * kept + wide);
}

function pick(place, bring) {
  state.pick = place;
  if (bring) {
    const wide = Math.min(state.to - state.from, Math.max(64, place.length * 8));
    show(place.offset - (wide - place.length) / 2, place.offset + (wide + place.length) / 2);
  } else draw();
  $("hex").replaceChildren(hexView(state.file, place));
  history.replaceState(null, "", placeHash(state.file, place.offset));
}

/** Shows the place that the address names, if it names one. */
function follow() {
  const found = /^#(?:(.*)@)?(\d+)$/.exec(location.hash);
  if (!found) return;
  let name = found[1] || "";
  try { name = decodeURIComponent(name); } catch { return; }
  const index = found[1] === undefined ? FILES.indexOf(state.file) : FILES.findIndex((one) => shortPath(one.path) === name);
  const offset = Number(found[2]);
  if (index < 0 || offset >= FILES[index].size) return;
  if (FILES[index] !== state.file) choose(index);
  pick(state.file.placeAt(offset), true);
  $("bytes").scrollIntoView({ block: "nearest" });
  $("layout").scrollIntoView({ block: "start" });
}

function step(direction) {
  const { file, pick: chosen } = state;
  if (!file.starts.length) return;
  let row = chosen ? file.rowAt(chosen.offset) : -1;
  row = Math.max(0, Math.min(file.starts.length - 1, chosen && direction < 0 && file.starts[row] < chosen.offset ? row : row + direction));
  pick({ what: "row", offset: file.starts[row], length: file.lengths[row] }, true);
}

function stepDamage(direction) {
  const { file } = state, at = state.pick ? state.pick.offset : direction > 0 ? -1 : Infinity;
  const found = direction > 0 ? file.lost.find((one) => one.offset > at) : [...file.lost].reverse().find((one) => one.offset < at);
  if (found) pick({ what: NAMES[found.use], offset: found.offset, length: found.length, damage: found }, true);
}

function choose(index) {
  state.file = FILES[index];
  Object.assign(state, { from: 0, to: Math.max(1, state.file.size), pick: null, brush: null });
  if ($("choice")) $("choice").value = index;
  buildCharts();
  draw();
  $("hex").replaceChildren(hexView(state.file, { what: "place", offset: 0, length: 0 }));
}

function said() {
  const { file, from, to } = state, uses = file.uses(from, to), all = to - from;
  const parts = USES.filter((use) => uses[use] >= 0.5).map((use) => `${NAMES[use]} ${share(uses[use], all)}`);
  return `Bytes ${whole(from)} to ${whole(to)} of ${whole(file.size)}: ${parts.join(", ") || "nothing that was read"}`;
}

function draw() {
  const { file, from, to, pick: chosen } = state, selected = selection();
  if (!file) return;
  drawStrip($("whole"), file, 0, Math.max(1, file.size), { window: [from, to], marks: true });
  drawStrip($("view"), file, from, to, { pick: chosen, selected, marks: true });
  $("status").textContent = said();
  $("view").setAttribute("aria-label", `${file.path}. ${said()}`);
  for (const chart of document.querySelectorAll("canvas.chart")) chart.redraw();
  sayBrushed(selected);
}

function sayBrushed(selected) {
  const { file, brush } = state;
  if (!selected) { $("brushed").replaceChildren(); return; }
  let rows = 0, bytes = 0, from = Infinity, to = 0;
  for (let bin = 0; bin < file.count; bin++) {
    if (!selected(bin)) continue;
    rows += file.bins.rows[bin]; bytes += file.binEnd(bin) - bin * file.bin_bytes;
    from = Math.min(from, bin * file.bin_bytes); to = Math.max(to, file.binEnd(bin));
  }
  const range = brush.by === "bytes" ? "" : ` (${file.orderText(brush.from)} to ${file.orderText(brush.to)})`;
  $("brushed").replaceChildren(`Selected${range}: ${file.hasRows ? counted(rows, "row") + " in " : ""}${bytesText(bytes)}, to the bin. `,
    el("button", { onclick: () => show(from, to) }, "Zoom to it"), " ", el("button", { onclick: () => { state.brush = null; draw(); } }, "Clear"));
}

/** Dragging over a canvas; `offset(x)` says what lies there, `done(from, to)` takes what was dragged over. */
function draggable(canvas, done, clicked) {
  let begun = null;
  const place = (event) => Math.max(0, Math.min(1, event.offsetX / canvas.clientWidth));
  canvas.addEventListener("pointerdown", (event) => { begun = place(event); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => { if (begun !== null && Math.abs(place(event) - begun) > 0.004) done(...[begun, place(event)].sort((a, b) => a - b)); });
  canvas.addEventListener("pointerup", (event) => { if (begun !== null && Math.abs(place(event) - begun) <= 0.004) clicked(place(event)); begun = null; });
  canvas.addEventListener("pointercancel", () => { begun = null; });
}

const inView = (at) => state.from + at * (state.to - state.from);
const brushBytes = (a, b) => { state.brush = { by: "bytes", from: inView(a), to: inView(b) }; draw(); };

function chart(title, redraw, brush, clicked, tell) {
  const caption = el("figcaption", {}, title);
  const canvas = el("canvas", { class: "chart", tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": title });
  const box = el("div", { class: "cursor" }, canvas);
  let at = null, begun = null;
  const move = (to) => { at = Math.max(0, Math.min(0.999, to)); box.style.setProperty("--at", `${100 * at}%`); $("told").textContent = tell(at); };
  canvas.addEventListener("mousemove", (event) => { canvas.title = tell(Math.max(0, Math.min(0.999, event.offsetX / canvas.clientWidth))); });
  canvas.addEventListener("blur", () => { at = begun = null; box.style.removeProperty("--at"); $("told").textContent = ""; });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -0.01, ArrowRight: 0.01 }[event.key];
    if (event.ctrlKey || event.metaKey || !(by || (event.key === "Enter" && at !== null) || event.key === "Escape")) return;
    event.preventDefault();
    if (by && event.shiftKey) begun ??= at ?? 0; else begun = null;
    if (by) move((at ?? -by) + by);
    if (begun !== null) brush(...[begun, at].sort((a, b) => a - b));
    if (event.key === "Enter") clicked(at);
    if (event.key === "Escape") { state.brush = null; draw(); }
  });
  canvas.redraw = () => { const more = redraw(canvas); caption.textContent = title + (more ? `: ${more}` : ""); canvas.setAttribute("aria-label", caption.textContent); };
  draggable(canvas, brush, clicked);
  $("charts").append(el("figure", {}, caption, box));
}

/** What the bin at a place of the charts knows. */
function binText(at) {
  const { file } = state, { bins } = file, bin = Math.min(file.count - 1, Math.floor(inView(at) / file.bin_bytes));
  const rows = bins.rows[bin], parts = [`Bytes ${whole(bin * file.bin_bytes)} to ${whole(file.binEnd(bin))}`, counted(rows, "row")];
  if (rows) parts.push(`${whole(bins.shortest[bin])} to ${whole(bins.longest[bin])} bytes each, ${whole(bins.row_bytes[bin] / rows)} on average`);
  if (file.hasOrder && bins.low[bin] !== null) parts.push(`${DATA.order.column} ${file.orderText(bins.low[bin])} to ${file.orderText(bins.high[bin])}`);
  if (bins.resets[bin]) parts.push(counted(bins.resets[bin], "step") + " back");
  return parts.join("; ");
}

function buildCharts() {
  const { file } = state, bins = file.bins;
  $("charts").replaceChildren();
  const clicked = (at) => pick(file.placeAt(inView(at)), false);
  if (file.hasRows) {
    chart("Rows per bin along the file", (canvas) => {
      const [, high] = drawBins(canvas, file, state.from, state.to, (bin) => bins.rows[bin] ? [0, bins.rows[bin]] : null, { zero: true, selected: selection() });
      return high === null ? "no row begins in these bytes" : `up to ${whole(high)} in ${bytesText(file.bin_bytes)}`;
    }, brushBytes, clicked, binText);
    chart("Bytes from each row to the next, along the file", (canvas) => {
      const [low, high] = drawBins(canvas, file, state.from, state.to, (bin) => bins.rows[bin] ? [bins.shortest[bin], bins.longest[bin], bins.row_bytes[bin] / bins.rows[bin]] : null, { selected: selection() });
      return low === null ? "no row begins in these bytes" : `${whole(low)} to ${whole(high)}, the line is the mean`;
    }, brushBytes, clicked, binText);
  } else {
    $("charts").append(el("p", {}, "The rows of this view do not say where in this file they stand, so there are no charts of them."));
  }
  if (file.hasOrder) {
    const name = DATA.order.column;
    chart(`${name} along the file`, (canvas) => {
      const [low, high] = drawBins(canvas, file, state.from, state.to, (bin) => bins.low[bin] === null ? null : [bins.low[bin], bins.high[bin]], { selected: selection(), mark: (bin) => bins.resets[bin] > 0 });
      const largest = file.order.step ? `; largest step ${file.stepText(file.order.step)} at byte ${whole(file.order.step_at)}` : "";
      if (low === null) return `no values in these bytes${largest}`;
      return `${file.orderText(low)} to ${file.orderText(high)}; ${counted(file.order.resets, "step")} back${largest}`;
    }, brushBytes, clicked, binText);
    const along = (a, b) => { const { low, high } = file.order; state.brush = { by: "order", from: low + a * (high - low), to: low + b * (high - low) }; draw(); };
    chart(`Rows along ${name}`, (canvas) => { drawOrder(canvas, file, selection()); return `${file.orderText(file.order.low)} to ${file.orderText(file.order.high)}; gaps are marked below`; },
      along, (at) => along(Math.max(0, at - 0.01), Math.min(1, at + 0.01)), (at) => file.orderText(file.order.low + at * (file.order.high - file.order.low)));
  }
  fillTables();
}

/** The tables behind the pictures: made when they are opened, in at most fifty rows. */
function fillTables() {
  const { file } = state, groups = Math.min(50, file.count);
  const edges = Array.from({ length: groups + 1 }, (_, i) => Math.round(i * file.count / groups));
  const lines = edges.slice(0, -1).map((first, i) => {
    const bins = Array.from({ length: edges[i + 1] - first }, (_, k) => first + k);
    const sum = (name) => bins.reduce((all, bin) => all + file.bins[name][bin], 0);
    return { from: first * file.bin_bytes, to: file.binEnd(edges[i + 1] - 1), bins, sum };
  });
  $("layout-table").lastElementChild.replaceChildren(table(["From byte", "to", ...USES.map((use) => NAMES[use])],
    lines.map((one) => [one.from, one.to, ...USES.map((use) => one.sum(use + "_bytes"))]), `${file.path}, bytes by use`));
  const heads = ["From byte", "to", "Rows", "Bytes per row", ...(file.hasOrder ? ["lowest " + DATA.order.column, "highest", "steps back"] : [])];
  $("charts-table").lastElementChild.replaceChildren(table(heads, lines.map((one) => {
    const rows = one.sum("rows"), values = file.hasOrder ? one.bins.filter((bin) => file.bins.low[bin] !== null) : [];
    const ordered = values.length ? [file.orderText(Math.min(...values.map((bin) => file.bins.low[bin]))), file.orderText(Math.max(...values.map((bin) => file.bins.high[bin]))), one.sum("resets")] : ["", "", 0];
    return [one.from, one.to, rows, rows ? one.sum("row_bytes") / rows : 0, ...(file.hasOrder ? ordered : [])];
  }), `${file.path}, rows`));
}

function buildHead() {
  const verdict = DATA.damaged ? counted(DATA.files.reduce((all, one) => all + one.damage_count, 0), "damage") : DATA.unsupported ? "not all is supported" : "no damage";
  const unread = DATA.files.reduce((all, one) => all + one.unread, 0);
  $("head").append(el("h1", {}, DATA.paths.join(", ")), el("ul", { class: "facts" },
    el("li", {}, el("span", { class: `verdict ${DATA.damaged ? "bad" : ""}` }, verdict)),
    ...[["Format", DATA.title], ["View", DATA.view], ["Rows", whole(DATA.rows)], ["Size", `${bytesText(DATA.size)} in ${counted(FILES.length, "file")}`],
      ...USES.filter((use) => DATA.bytes[use]).map((use) => [NAMES[use][0].toUpperCase() + NAMES[use].slice(1), bytesText(DATA.bytes[use])]),
      ...(unread ? [["Not read", bytesText(unread)]] : [])].map(([name, value]) => el("li", {}, el("b", {}, `${name} `), value))));
  const facts = Object.entries(DATA.facts);
  if (facts.length) $("head").append(el("ul", { class: "facts hint" }, facts.map(([name, value]) => el("li", {}, `${name}: ${value}`))));
  for (const use of [...USES, "unread"]) {
    const swatch = el("span", { class: "key" });
    swatch.style.background = LOST.includes(use) ? `repeating-linear-gradient(135deg, var(--${use}) 0 4px, var(--paper) 4px 5px)` : `var(--${use})`;
    $("legend").append(el("li", {}, swatch, NAMES[use]));
  }
}

function buildTools() {
  const tools = [["Zoom in", () => zoom(0.5)], ["Zoom out", () => zoom(2)], ["Whole file", () => show(0, state.file.size)],
    ["Previous row", () => step(-1)], ["Next row", () => step(1)], ["Previous damage", () => stepDamage(-1)], ["Next damage", () => stepDamage(1)]];
  for (const [name, action] of tools) $("tools").append(el("button", { type: "button", onclick: action }, name));
  if (FILES.length > 1) {
    const select = el("select", { id: "choice", onchange: (event) => choose(Number(event.target.value)) }, FILES.map((file, i) => el("option", { value: i }, `${shortPath(file.path)} (${bytesText(file.size)}${file.damage_count ? `, ${counted(file.damage_count, "damage")}` : ""})`)));
    $("files-choice").append(el("label", { for: "choice" }, "File "), select);
  }
  const view = $("view");
  view.addEventListener("wheel", (event) => { if (!event.ctrlKey) return; event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, inView(event.offsetX / view.clientWidth)); }, { passive: false });
  const keys = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), Home: () => show(0, state.file.size),
    End: () => show(state.file.size - (state.to - state.from), state.file.size), n: () => step(1), p: () => step(-1), d: () => stepDamage(1), D: () => stepDamage(-1),
    Enter: () => pick(state.file.placeAt((state.from + state.to) / 2), false), Escape: () => { state.brush = null; draw(); } };
  view.addEventListener("keydown", (event) => { const act = keys[event.key]; if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); } });
  draggable(view, brushBytes, (at) => pick(state.file.placeAt(inView(at)), false));
  const centre = (at) => { const wide = state.to - state.from; show(at * state.file.size - wide / 2, at * state.file.size + wide / 2); };
  draggable($("whole"), (a, b) => show(a * state.file.size, b * state.file.size), centre);
}

function pan(share) {
  const by = (state.to - state.from) * share;
  show(state.from + by, state.to + by);
}

function buildDamage() {
  const listed = FILES.flatMap((file, index) => file.lost.map((one) => ({ ...one, index })));
  const total = FILES.reduce((all, file) => all + file.damage_count + file.unsupported_count, 0);
  if (!total) { $("damages").append(el("p", {}, "None was found.")); return; }
  const link = (one) => placeLink(FILES[one.index], one.offset, whole(one.offset));
  const rows = listed.map((one) => [link(one), one.length, one.kind, one.dropped, one.detail, ...(FILES.length > 1 ? [shortPath(one.path)] : [])]);
  const more = total > listed.length ? `The first ${whole(listed.length)} of ${whole(total)}; sawlog cat --view damage lists all.` : "";
  $("damages").append(table(["Offset", "Bytes", "Kind", "Dropped", "Detail", ...(FILES.length > 1 ? ["File"] : [])], rows, more));
  boxed($("damages"), "Damage");
}

function buildContent() {
  $("columns").append(table(["Column", "Type", "Nulls", "Least", "Greatest", "Different values"],
    DATA.columns.map((one) => [one.name, one.type, one.nulls, one.low === null ? "" : one.low, one.high === null ? "" : one.high, one.distinct === null ? "" : one.distinct < 1024 ? whole(one.distinct) : `about ${whole(one.distinct)}`]), ""));
  for (const keys of DATA.keys) {
    const sized = keys.top.some(([, , size]) => size > 0), most = Math.max(...keys.top.map((one) => one[sized ? 2 : 1]), 1);
    const bar = (size) => { const mark = el("i"); mark.style.width = `${100 * size / most}%`; return el("span", { class: "bar", "aria-hidden": "true" }, mark); };
    const note = keys.least ? `There are too many for exact counts: ${sized ? "rows and bytes" : "rows"} are at least these.` : "";
    $("keys-tables").append(el("h3", {}, `${sized ? "Largest by bytes" : "Most rows"}: ${keys.column}`), el("div", { class: "scroll" },
      table([keys.column, "Rows", ...(sized ? ["Bytes"] : []), ""], keys.top.map(([key, rows, size]) => [key, rows, ...(sized ? [size, bar(size)] : [bar(rows)])]), note)));
  }
  $("rows").append(DATA.head.length ? table(DATA.columns.map((one) => one.name), DATA.head, "") : el("p", {}, "There are no rows."));
}

function buildFiles() {
  const ordered = FILES.filter((file) => file.order), low = Math.min(...ordered.map((file) => file.order.low)), high = Math.max(...ordered.map((file) => file.order.high));
  const bar = (parts) => el("span", { class: "bar", "aria-hidden": "true" }, parts.map(([name, left, wide]) => { const mark = el("i", { class: name }); mark.style.left = `${left}%`; mark.style.width = `${wide}%`; return mark; }));
  const uses = (file) => { let left = 0; return bar(USES.map((use) => { const wide = 100 * file.bytes[use] / Math.max(1, file.size); left += wide; return [use, left - wide, wide]; }).filter((one) => one[2] > 0)); };
  const span = (file) => file.order ? bar([["record", 100 * (file.order.low - low) / (high - low || 1), 100 * (file.order.high - file.order.low) / (high - low || 1)]]) : "";
  const heads = ["File", "Bytes", "Rows", "Damage", "Tail", "Use"];
  const rows = FILES.map((file) => [file.size ? placeLink(file, 0, shortPath(file.path)) : shortPath(file.path), file.size, file.rows === null ? "" : file.rows, file.damage_count,
    file.tail ? file.tail.status : "", uses(file), ...(ordered.length ? [file.order ? `${file.orderText(file.order.low)} to ${file.orderText(file.order.high)}` : "", span(file)] : [])]);
  if (SHARED) $("file-table").before(el("p", { class: "hint" }, `In ${SHARED}`));
  $("file-table").append(table([...heads, ...(ordered.length ? [DATA.order.column, ""] : [])], rows, ""));
  boxed($("file-table"), "Files");
  if (DATA.skipped.length) $("skipped").append(el("h3", {}, "Not read"), boxed(el("div", { class: "scroll" }, table(["File", "Bytes", "Why"], DATA.skipped.map((one) => [shortPath(one.path), one.bytes, one.reason]), "")), "Not read"));
}

function buildPictures() {
  $("drawn").append(...DATA.pictures.map(drawPicture));
  $("pictures").hidden = !DATA.pictures.length;
}

buildHead();
buildPictures();
buildTools();
buildDamage();
buildContent();
buildFiles();
const telling = [(file) => file.damage_count, (file) => file.unread < file.size].map((one) => FILES.findIndex(one)).find((at) => at >= 0);
if (FILES.length) choose(telling ?? 0);
follow();
window.addEventListener("hashchange", follow);
window.addEventListener("resize", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
window.addEventListener("beforeprint", draw);
