// Drawing: strips of bytes, and charts over the same range.

function colours() {
  const style = getComputedStyle(document.documentElement);
  return new Proxy({}, { get: (_, name) => style.getPropertyValue(`--${name}`).trim() });
}

/** A canvas made ready: context, width and height in CSS pixels, cleared. */
function prepared(canvas) {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.floor(canvas.clientWidth || box.width)), height = Math.max(1, Math.floor(canvas.clientHeight || box.height));
  canvas.width = width * ratio; canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** Colour and, for what is lost, a hatching that does without colour. */
function fill(context, palette, use, x, y, width, height) {
  context.fillStyle = palette[use];
  context.fillRect(x, y, width, height);
  if (!LOST.includes(use) || width < 4 || height < 4) return;
  context.save();
  context.beginPath(); context.rect(x, y, width, height); context.clip();
  context.strokeStyle = palette.paper; context.lineWidth = 1;
  context.beginPath();
  for (let at = x - height; at < x + width; at += 6) { context.moveTo(at, y + height); context.lineTo(at + height, y); }
  context.stroke();
  context.restore();
}

/** The bytes of [from, to) as a strip: each pixel column divided by use. */
function drawStrip(canvas, file, from, to, options) {
  const { context, width, height } = prepared(canvas), palette = colours();
  const perPixel = (to - from) / width, x = (offset) => (offset - from) / (to - from) * width;
  const single = file.starts.length && perPixel * 5 < meanRow(file, from, to);
  for (let column = 0; column < width; column++) {
    const start = from + column * perPixel, end = Math.min(start + perPixel, file.size);
    const uses = file.uses(start, end), all = Math.max(end - start, 1e-9);
    if (single) { // what stands between rows
      context.fillStyle = palette[USES.slice(1).reduce((best, use) => uses[use] > uses[best] ? use : best)];
      if (USES.slice(1).some((use) => uses[use])) context.fillRect(column, 0, 1, height);
      continue;
    }
    let y = height;
    for (const use of USES) {
      if (!uses[use]) continue;
      let part = Math.min(uses[use] / all, 1) * height;
      if (LOST.includes(use)) part = Math.max(part, Math.min(height, 6));
      y -= part;
      context.fillStyle = palette[use];
      context.fillRect(column, Math.max(0, y), 1, part + 0.5);
    }
  }
  if (single) drawRows(context, palette, file, from, to, x, height);
  for (const one of file.lost) {
    if (one.offset + one.length < from || one.offset > to) continue;
    const left = x(one.offset), wide = Math.max(2, x(one.offset + one.length) - left);
    fill(context, palette, one.use, left, options.marks ? 0 : height * 0.3, wide, height);
  }
  const tail = file.tail;
  if (tail && tail.length && tail.status !== "padding" && tail.offset + tail.length > from && tail.offset < to) {
    fill(context, palette, "tail", x(tail.offset), 0, Math.max(2, x(tail.offset + tail.length) - x(tail.offset)), height);
  }
  if (options.window) {
    const [a, b] = options.window;
    context.strokeStyle = palette.pick; context.lineWidth = 2;
    context.strokeRect(Math.max(1, x(a)), 1, Math.max(3, x(b) - x(a) - 2), height - 2);
  }
  if (options.selected) dim(context, palette, width, height, from, to, file, options.selected);
  if (options.pick) {
    const left = x(options.pick.offset), wide = Math.max(3, x(options.pick.offset + options.pick.length) - left);
    context.strokeStyle = palette.pick; context.lineWidth = 2;
    context.strokeRect(left, 1, wide, height - 2);
  }
}

/** Bytes of a row between two offsets, on average; 0 where rows are not known one by one. */
function meanRow(file, from, to) {
  const first = Math.max(0, file.rowAt(from)), last = file.rowAt(to);
  if (last < first || (!file.complete && file.starts[first] > from + (to - from) / 2)) return 0;
  return (to - from) / (last - first + 1);
}

function drawRows(context, palette, file, from, to, x, height) {
  for (let row = Math.max(0, file.rowAt(from)); row < file.starts.length && file.starts[row] < to; row++) {
    const left = x(file.starts[row]), wide = x(file.starts[row] + file.lengths[row]) - left;
    context.fillStyle = palette.record;
    context.fillRect(left, 0, wide, height);
    context.fillStyle = palette.paper;
    context.fillRect(left + wide - 1, 0, 1, height);
  }
}

function dim(context, palette, width, height, from, to, file, selected) {
  context.fillStyle = palette.paper;
  context.globalAlpha = 0.72;
  for (let column = 0; column < width; column++) {
    const bin = Math.min(file.count - 1, Math.floor((from + (column + 0.5) * (to - from) / width) / file.bin_bytes));
    if (!selected(bin)) context.fillRect(column, 0, 1, height);
  }
  context.globalAlpha = 1;
}

/** Bars or bands over the bins of [from, to). `value(bin)` gives [low, high, middle?] or null. The bounds, nulls for none. */
function drawBins(canvas, file, from, to, value, options) {
  const { context, width, height } = prepared(canvas), palette = colours();
  const first = Math.floor(from / file.bin_bytes), last = Math.min(file.count - 1, Math.floor((to - 1e-9) / file.bin_bytes));
  let low = Infinity, high = -Infinity;
  const values = [];
  for (let bin = first; bin <= last; bin++) {
    const one = value(bin);
    values.push(one);
    if (one) { low = Math.min(low, one[0]); high = Math.max(high, one[1]); }
  }
  if (high < low) return [null, null];
  if (options.zero) low = 0;
  const top = 4, room = height - 8, y = (v) => top + room - (v - low) / (high - low || 1) * room;
  values.forEach((one, i) => {
    if (!one) return;
    const bin = first + i, left = (bin * file.bin_bytes - from) / (to - from) * width, right = (file.binEnd(bin) - from) / (to - from) * width;
    const chosen = !options.selected || options.selected(bin);
    context.globalAlpha = chosen ? 1 : 0.22;
    context.fillStyle = palette.band;
    context.fillRect(left, y(one[1]), Math.max(1, right - left), Math.max(1.5, y(one[0]) - y(one[1])));
    if (one.length > 2) { context.fillStyle = palette["line-strong"]; context.fillRect(left, y(one[2]) - 1, Math.max(1, right - left), 2); }
    if (options.mark && options.mark(bin)) { context.fillStyle = palette.damage; context.fillRect(left, 0, Math.max(2, Math.min(3, right - left)), height); }
  });
  context.globalAlpha = 1;
  return [low, high];
}

/** Rows along time or sequence: from each bin's bounds, spread evenly between them where these are near. */
function alongOrder(file, buckets, selected) {
  const { low, high } = file.order, all = new Float64Array(buckets), chosen = new Float64Array(buckets);
  const wide = (high - low) / buckets || 1;
  for (let bin = 0; bin < file.count; bin++) {
    if (file.bins.low[bin] === null) continue;
    const a = Math.min(buckets - 1, Math.floor((file.bins.low[bin] - low) / wide)), b = Math.min(buckets - 1, Math.floor((file.bins.high[bin] - low) / wide));
    const places = b - a > 4 ? [a, b] : Array.from({ length: b - a + 1 }, (_, i) => a + i); // a gap has no rows
    for (const at of places) {
      const rows = file.bins.rows[bin] / places.length;
      all[at] += rows;
      if (!selected || selected(bin)) chosen[at] += rows;
    }
  }
  return { all, chosen };
}

function drawOrder(canvas, file, selected) {
  const { context, width, height } = prepared(canvas), palette = colours();
  const buckets = Math.max(1, Math.min(200, Math.floor(width / 4))), { all, chosen } = alongOrder(file, buckets, selected);
  const most = Math.max(...all, 1), wide = width / buckets;
  for (let at = 0; at < buckets; at++) {
    for (const [values, alpha] of [[all, 0.22], [chosen, 1]]) {
      const tall = values[at] / most * (height - 6);
      context.globalAlpha = alpha;
      context.fillStyle = palette.band;
      context.fillRect(at * wide, height - tall, Math.max(1, wide - 1), tall);
    }
    if (!all[at] && file.order.high > file.order.low) { context.globalAlpha = 1; context.fillStyle = palette.damage; context.fillRect(at * wide, height - 3, wide, 3); }
  }
  context.globalAlpha = 1;
}
