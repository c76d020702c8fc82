// Charts that are declared as data: lanes of boxes over one axis, with hover text, keys, links and a table.

const SVG = "http://www.w3.org/2000/svg";

/** The address of a place in this page. */
function placeHash(file, offset) {
  return FILES.length > 1 ? `#${encodeURIComponent(shortPath(file.path))}@${offset}` : `#${offset}`;
}

/** A link to a place of a file. */
function placeLink(file, offset, text) {
  return el("a", { href: placeHash(file, offset), onclick: (event) => { event.preventDefault(); go(file, offset); } }, text);
}

/** Goes to a place of a file. */
function go(file, offset) {
  history.pushState(null, "", placeHash(file, offset));
  follow();
}

function axisText(axis, value) {
  if (axis === "bytes") return bytesText(value);
  if (axis === "number") return whole(value);
  const moment = new Date(value);
  return Number.isNaN(moment.getTime()) ? String(value) : moment.toISOString().replace("T", " ").replace(/(\.000)?Z$/, "");
}

function pictureBoxes(picture) {
  return picture.lanes.flatMap((lane, number) => lane.rows.flat().map(([start, end, text, series, height, path, offset]) =>
    ({ lane: number, label: lane.label, start, end, text, series, height, file: path === undefined ? null : FILES.find((one) => one.path === picture.paths[path]), offset })));
}

/** The rectangles of one row of a lane. */
function drawTrack(boxes, low, high, zero) {
  const track = document.createElementNS(SVG, "svg");
  track.setAttribute("aria-hidden", "true");
  for (const box of boxes) {
    const mark = document.createElementNS(SVG, "rect"), title = document.createElementNS(SVG, "title");
    const left = 100 * (box.start - low) / (high - low), wide = zero && box.end === box.start ? 0 : Math.max(0.5, 100 * (box.end - box.start) / (high - low));
    for (const [name, value] of [["x", `${Math.min(left, 99.5)}%`], ["width", `${wide}%`], ["y", `${100 * (1 - box.height)}%`], ["height", `${100 * box.height}%`], ["class", `series${box.series % 6}${box.file ? " leads" : ""}`]]) mark.setAttribute(name, value);
    title.textContent = box.text;
    mark.append(title);
    box.mark = mark;
    track.append(mark);
  }
  return track;
}

function drawPicture(picture) {
  const boxes = pictureBoxes(picture), figure = el("figure", { class: "picture" }, el("figcaption", {}, el("h3", {}, picture.title)));
  const zero = picture.axis !== "time";
  const low = boxes.reduce((least, one) => Math.min(least, one.start), zero ? 0 : Infinity);
  const high = Math.max(boxes.reduce((most, one) => Math.max(most, one.end), -Infinity), low + 1e-9);
  if (picture.note) figure.append(el("p", { class: "hint" }, picture.note));
  if (!boxes.length) return figure;
  if (picture.series.length > 1) {
    figure.append(el("ul", { class: "legend" }, picture.series.map((name, i) => el("li", {}, el("span", { class: `key series${i % 6}` }), name || "other"))));
  }
  const chart = el("div", { class: `lanes${picture.tall ? " tall" : ""}`, tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": `${picture.title}: ${counted(boxes.length, "box").replace(/xs$/, "xes")} in ${counted(picture.lanes.length, "lane")}; arrow keys go from one to the next, Enter to its bytes` });
  const said = el("p", { class: "said", role: "status", "aria-live": "polite" }, "\u00a0");
  let at = -1, taken = 0;
  for (const lane of picture.lanes) {
    const tracks = lane.rows.map((row) => { const some = boxes.slice(taken, taken + row.length); taken += row.length; return drawTrack(some, low, high, zero); });
    chart.append(el("div", { class: "label", title: lane.label }, lane.label), el("div", { class: "tracks" }, tracks));
  }
  const ends = picture.axis === "keys" ? picture.ends : [axisText(picture.axis, low), axisText(picture.axis, high)];
  chart.append(el("div", {}), el("div", { class: "axis" }, el("span", {}, ends[0]), el("span", {}, ends[1])));
  const tell = (index) => {
    if (boxes[at]) boxes[at].mark.classList.remove("on");
    at = index;
    if (!boxes[at]) return;
    boxes[at].mark.classList.add("on");
    said.replaceChildren(boxes[at].text, ...(boxes[at].file ? [" ", placeLink(boxes[at].file, boxes[at].offset, "its bytes")] : []));
  };
  const lead = () => { if (boxes[at] && boxes[at].file) go(boxes[at].file, boxes[at].offset); };
  const under = (event) => boxes.findIndex((box) => box.mark === event.target);
  chart.addEventListener("mouseover", (event) => { const found = under(event); if (found >= 0) tell(found); });
  chart.addEventListener("click", (event) => { const found = under(event); if (found >= 0) { tell(found); lead(); } });
  const lane = (by) => { const wanted = (boxes[at] ? boxes[at].lane : by > 0 ? -1 : 0) + by; const found = boxes.findIndex((box) => box.lane === wanted); return found < 0 ? at : found; };
  const keys = { ArrowRight: () => tell(Math.min(boxes.length - 1, at + 1)), ArrowLeft: () => tell(Math.max(0, at - 1)), ArrowDown: () => tell(lane(1)), ArrowUp: () => tell(lane(-1)),
    Home: () => tell(0), End: () => tell(boxes.length - 1), Enter: lead };
  chart.addEventListener("keydown", (event) => { const act = keys[event.key]; if (act && !event.ctrlKey && !event.metaKey && event.target === chart) { event.preventDefault(); act(); } });
  const details = el("details", {}, el("summary", {}, "As a table"), el("div", { class: "scroll" }));
  details.addEventListener("toggle", () => {
    const link = (box) => box.file ? placeLink(box.file, box.offset, `${FILES.length > 1 ? `${shortPath(box.file.path)} ` : ""}${whole(box.offset)}`) : "";
    const leads = boxes.some((box) => box.file);
    details.lastElementChild.replaceChildren(table(["In", ...(picture.series.length > 1 ? ["What"] : []), "Says", ...(leads ? ["Place"] : [])],
      boxes.map((box) => [box.label, ...(picture.series.length > 1 ? [picture.series[box.series]] : []), box.text, ...(leads ? [link(box)] : [])]), ""));
  }, { once: true });
  figure.append(chart, said, details);
  return figure;
}
