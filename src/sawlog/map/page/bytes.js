// Bytes as hexadecimal digits and text, with the parts of the format drawn over them.

function bytesOf(hex) {
  return Array.from({ length: hex.length / 2 }, (_, i) => parseInt(hex.substr(2 * i, 2), 16));
}

/** Index of the part that has an offset; -1 for none. */
function partAt(parts, offset) {
  return parts.findIndex((one) => one.offset <= offset && offset < one.offset + one.length);
}

function hexView(file, place) {
  const { excerpt, inside } = file.excerptAt(place.offset);
  const said = `${place.what === "place" ? "Byte" : place.what[0].toUpperCase() + place.what.slice(1) + " at byte"} ${whole(place.offset)}${place.length ? `, ${counted(place.length, "byte")}` : ""}`;
  const box = el("div", {}, el("p", { id: "place" }, said));
  if (place.damage) box.append(el("p", { class: "wrong" }, `${place.damage.kind}: ${place.damage.detail}`));
  if (!excerpt) { box.append(el("p", {}, "None of the bytes of this file are in this page.")); return box; }
  if (!inside) {
    box.append(el("p", { class: "hint" }, "These bytes are not in this page; the nearest that are follow. ",
      el("code", {}, `sawlog cat ${file.path} --provenance --filter "_offset = ${place.offset}"`), " shows the row."));
  }
  const data = bytesOf(excerpt.hex), parts = excerpt.parts, perLine = window.innerWidth < 600 ? 8 : 16;
  const pre = el("pre", { "aria-hidden": "true" });
  const lost = place.damage ? [place.damage.offset, place.damage.offset + place.damage.length] : [0, 0];
  for (let line = 0; line < data.length; line += perLine) {
    const digits = [], letters = [];
    for (let i = line; i < Math.min(line + perLine, data.length); i++) {
      const at = excerpt.offset + i, part = partAt(parts, at);
      const classes = `${part >= 0 ? `part${part % 6}` : ""} ${lost[0] <= at && at < lost[1] ? "lost" : place.offset <= at && at < place.offset + place.length ? "chosen" : ""}`.trim();
      const more = part >= 0 ? { "data-part": part, title: `${parts[part].name} ${parts[part].value}` } : {};
      digits.push(el("b", { class: classes, ...more }, data[i].toString(16).padStart(2, "0")), " ");
      letters.push(el("b", { class: classes, ...more }, data[i] >= 32 && data[i] < 127 ? String.fromCharCode(data[i]) : "·"));
    }
    const missing = perLine - Math.min(perLine, data.length - line);
    pre.append(el("span", { class: "place" }, (excerpt.offset + line).toString(16).padStart(8, "0"), "  "), ...digits, " ".repeat(3 * missing + 1), ...letters, "\n");
  }
  const view = el("div", { class: "hex" }, pre);
  if (parts.length) {
    const row = (part, i, inside) => el("tr", { "data-part": i, class: inside ? "inside" : "" },
      el("td", {}, el("span", { class: `swatch part${i % 6}` }), part.name),
      el("td", { class: "number" }, inside ? `in it, ${whole(part.offset)}` : whole(part.offset)), el("td", { class: "number" }, whole(part.length)), el("td", {}, part.use),
      el("td", { class: "text" }, part.value, part.expected ? el("span", { class: "wrong" }, ` expected ${part.expected}`) : ""));
    const rows = parts.flatMap((part, i) => [row(part, i, false), ...part.inside.map((one) => row(one, i, true))]);
    const head = el("tr", {}, ...["Field", "Offset", "Bytes", "Use", "Value"].map((name, i) => el("th", { class: i === 1 || i === 2 ? "number" : "", scope: "col" }, name)));
    const table = el("table", { id: "parts" }, el("thead", {}, head), el("tbody", {}, rows));
    const light = (event, on) => {
      const cell = event.target.closest("[data-part]");
      if (cell) view.querySelectorAll(`[data-part="${cell.dataset.part}"]`).forEach((one) => one.classList.toggle("on", on));
    };
    view.addEventListener("mouseover", (event) => light(event, true));
    view.addEventListener("mouseout", (event) => light(event, false));
    view.append(el("div", { class: "scroll" }, table));
  } else {
    view.append(el("p", { class: "hint" }, "This format does not name the fields of its bytes."));
  }
  box.append(view);
  return box;
}
