// The data of the page, made ready to be asked.

const USES = ["record", "header", "padding", "tail", "damage", "unsupported"];
const LOST = ["damage", "unsupported"];
const NAMES = { record: "records", header: "headers", padding: "padding", tail: "unfinished tail", damage: "damage", unsupported: "not supported", unread: "not read" };

/** Makes an element; texts become text, never markup. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) made.append(child instanceof Node ? child : String(child));
  return made;
}

function counted(number, noun) {
  return `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function whole(number) {
  return Math.round(number).toLocaleString("en-US");
}

function bytesText(size) {
  let value = size, unit = "bytes";
  for (const larger of ["KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1024) break;
    value /= 1024; unit = larger;
  }
  return unit === "bytes" ? counted(size, "byte") : `${value.toFixed(1)} ${unit}`;
}

function share(part, all) {
  if (!all) return "0 %";
  const percent = 100 * part / all;
  return percent > 0 && percent < 0.01 ? "< 0.01 %" : `${percent.toFixed(percent < 1 ? 2 : 1)} %`;
}

/** A part of an excerpt, and what is inside of it once it is decompressed. */
function partOf([name, offset, length, value, expected, use, inside = []]) {
  return { name, offset, length, value, expected, use, inside: inside.map(partOf) };
}

/** One file: its bins, its rows as far as they are known one by one, its damage, what is not supported, and excerpts. */
class FileModel {
  constructor(data, order) {
    Object.assign(this, data);
    this.orderKind = order ? order.kind : null;
    this.count = this.bins.rows.length;
    this.starts = new Float64Array(data.spans.steps.length);
    this.lengths = data.spans.bytes;
    let at = 0;
    data.spans.steps.forEach((step, i) => { at += step; this.starts[i] = at; });
    this.excerpts = data.excerpts.map((one) => ({ ...one, parts: one.parts.map(partOf) }));
    this.lost = LOST.flatMap((use) => data[use === "damage" ? "damages" : use].map((one) => ({ ...one, use }))).sort((a, b) => a.offset - b.offset);
  }

  get hasRows() { return this.rows !== null && this.bins.rows.some(Boolean); }

  get hasOrder() { return Boolean(this.order && this.bins.low); }

  binEnd(bin) { return Math.min((bin + 1) * this.bin_bytes, this.size); }

  /** Bytes by use in [from, to), where less than a bin is wanted by its share. */
  uses(from, to) {
    const found = Object.fromEntries(USES.map((use) => [use, 0]));
    const first = Math.max(0, Math.floor(from / this.bin_bytes)), last = Math.min(this.count - 1, Math.floor((to - 1e-9) / this.bin_bytes));
    for (let bin = first; bin <= last; bin++) {
      const start = bin * this.bin_bytes, end = this.binEnd(bin);
      const part = (Math.min(end, to) - Math.max(start, from)) / Math.max(1, end - start);
      if (part > 0) for (const use of USES) found[use] += this.bins[use + "_bytes"][bin] * part;
    }
    return found;
  }

  /** Index of the last known row that begins at or before an offset; -1 for none. */
  rowAt(offset) {
    let low = 0, high = this.starts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.starts[middle] <= offset) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  /** What stands at an offset: a damage, a row, the tail, or what a bin knows. */
  placeAt(offset) {
    const damage = this.lost.find((one) => one.offset <= offset && offset < one.offset + Math.max(1, one.length));
    if (damage) return { what: NAMES[damage.use], offset: damage.offset, length: damage.length, damage };
    const row = this.rowAt(offset);
    if (row >= 0 && offset < this.starts[row] + this.lengths[row]) return { what: "row", offset: this.starts[row], length: this.lengths[row] };
    const tail = this.tail;
    if (tail && tail.length && offset >= tail.offset) return { what: `${tail.status} tail`, offset: tail.offset, length: tail.length };
    const bin = Math.min(this.count - 1, Math.floor(offset / this.bin_bytes));
    if (!this.complete && this.bins.sample_bytes[bin]) return { what: "row", offset: this.bins.sample[bin], length: this.bins.sample_bytes[bin] };
    return { what: "place", offset: Math.floor(offset), length: 0 };
  }

  /** The excerpt that has an offset, or else the nearest. */
  excerptAt(offset) {
    let best = null, distance = Infinity;
    for (const one of this.excerpts) {
      const inside = one.offset <= offset && offset < one.offset + one.hex.length / 2;
      const away = inside ? (one.offset === offset ? -1 : 0) + (offset - one.offset) * 1e-9 : Math.min(Math.abs(one.offset - offset), Math.abs(one.offset + one.hex.length / 2 - offset)) + 1;
      if (away < distance) { best = one; distance = away; }
    }
    return { excerpt: best, inside: distance < 1 };
  }

  orderText(value) {
    if (this.orderKind !== "time") return whole(value);
    const moment = new Date(value);
    return Number.isNaN(moment.getTime()) ? String(value) : moment.toISOString().replace("T", " ").replace("Z", "");
  }

  stepText(value) {
    if (this.orderKind !== "time") return whole(value);
    const units = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000], ["ms", 1]];
    const [name, size] = units.find(([, one]) => value >= one) || ["ms", 1];
    return `${(value / size).toFixed(size === 1 ? 3 : 1).replace(/\.?0+$/, "")} ${name}`;
  }
}

const DATA = JSON.parse(document.getElementById("data").textContent);
const FILES = DATA.files.map((one) => new FileModel(one, DATA.order));

/** The directory that several files share, with its slash; empty for one file. */
const SHARED = (() => {
  if (FILES.length < 2) return "";
  let shared = FILES[0].path;
  for (const { path } of FILES) while (!path.startsWith(shared)) shared = shared.slice(0, -1);
  return shared.slice(0, shared.lastIndexOf("/") + 1);
})();

function shortPath(path) {
  return SHARED && path.startsWith(SHARED) ? path.slice(SHARED.length) : path;
}
