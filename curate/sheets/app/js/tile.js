// One image: its thumbnail, its tick, and what is said below it.

/** Return what stands for an image in words. */
function alternative(row, facts) {
  const klass = facts.class_column ? row.get(facts.class_column) : null;
  return [row.key, klass === null ? "" : `class ${klass}`, row.get("decision") ?? "", row.get("reason") ?? ""].filter(Boolean).join(", ");
}

/** Return the picture of a row, or a box that says that there is none. */
function picture(row, report) {
  const address = report.source.thumb(row);
  const absent = () => h("span", { class: "absent", role: "img", "aria-label": `no picture: ${alternative(row, report.facts)}` }, "no picture");
  if (!address) return absent();
  const image = h("img", { src: address, alt: alternative(row, report.facts), loading: "lazy", decoding: "async", draggable: "false" });
  image.addEventListener("error", () => image.replaceWith(absent()), { once: true });
  return image;
}

/** Return the tick of a row; with shift, all between the last one and this are ticked too. */
function tickBox(row, onrange) {
  const box = h("input", { type: "checkbox", "aria-label": `tick ${row.key}` });
  box.checked = ticks.keys.has(row.number);
  box.addEventListener("click", (event) => {
    ticks.set(event.shiftKey && onrange ? onrange(row) : [row], box.checked);
  });
  return h("label", { class: "tick", title: "Tick (x)" }, box);
}

/** Return the picture of a row as large as it can be had; the thumbnail stands there until it has come. */
function portrait(row, report) {
  const image = picture(row, report);
  if (image.tagName !== "IMG" || !report.source.large) return image;
  const large = new Image();
  large.addEventListener("load", () => (image.src = large.src), { once: true });
  large.src = report.source.large(row);
  return image;
}

/** Return a row as an item of a list of images. */
function tile(row, report, { mark = "", column = "", onlook, onrange }) {
  const { facts } = report;
  const decision = row.get("decision");
  const value = column ? row.get(column) : null;
  const klass = facts.class_column ? row.get(facts.class_column) : null;
  const item = h(
    "li",
    { class: `tile ${mark ? "chosen-one" : ""}`, "data-number": row.number },
    h("button", { type: "button", class: "look", onclick: () => onlook(row) }, picture(row, report)),
    tickBox(row, onrange),
    mark ? h("span", { class: "badge keep" }, mark) : decision && decision !== "keep" ? h("span", { class: `badge ${decision}` }, OUT[decision] ?? decision) : null,
    own(tail(row.key, 40), { class: "key", title: row.key }),
    decision && decision !== "keep" && row.get("reason") ? own(row.get("reason"), { class: "why", title: row.get("reason") }) : null,
    h("span", { class: "told" }, column ? h("span", { title: facts.labelOf(column) }, number(value)) : null, klass === null ? null : own(klass, { class: "class" })),
  );
  item.row = row;
  item.classList.toggle("ticked", ticks.keys.has(row.number));
  return item;
}

changes.addEventListener("ticks", () => {
  for (const item of document.querySelectorAll(".tile")) {
    const on = ticks.keys.has(item.row.number);
    item.classList.toggle("ticked", on);
    item.querySelector("input").checked = on;
  }
});
