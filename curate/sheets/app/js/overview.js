// What the table holds: rows, failures, formats, sizes, classes.

/** Return a list of names with bars; what a person may ask to see can be clicked. */
function bars(entries, { total, colour = () => "", onname = null }) {
  const most = Math.max(1, ...entries.map(([, n]) => n));
  return h(
    "ul",
    { class: "bars" },
    entries.map(([name, n]) => {
      const bar = widthOf(h("span", { class: `bar ${colour(name)}` }), n / most);
      const words = own(name === "" ? "(none)" : name, { class: "name", title: name });
      const label = onname ? h("button", { type: "button", class: "plain", onclick: () => onname(name) }, words) : words;
      return h("li", {}, label, h("span", { class: "line", "aria-hidden": "true" }, bar), h("span", { class: "n" }, count(n), h("small", {}, ` ${percent(n, total)}`)));
    }),
  );
}

function fact(value, words, detail = "") {
  return h("div", { class: "fact" }, h("strong", {}, value), h("span", {}, words), detail && h("small", {}, detail));
}

function panel(title, ...content) {
  return h("div", { class: "panel" }, h("h3", {}, title), ...content);
}

function drawOverview(facts, section) {
  const { overview, funnel = [] } = facts;
  const total = overview.status.reduce((sum, [, n]) => sum + n, 0);
  const readable = overview.status.filter(([name]) => name === "ok").reduce((sum, [, n]) => sum + n, 0);
  const { classes } = overview;
  const figures = [fact(count(facts.n_rows), "rows", facts.sampled ? "shown: a sample" : "")];
  if (total) figures.push(fact(count(readable), "readable images", percent(readable, total)));
  if (total > readable) figures.push(fact(count(total - readable), "failed", percent(total - readable, total)));
  if (classes && classes.n_classes) figures.push(fact(count(classes.n_classes), "classes"));
  const last = funnel.at(-1);
  const kept = overview.kept ?? last?.kept;
  if (last) figures.push(fact(count(kept), "kept at the end", `${percent(kept, funnel[0].rows_in)} of what went in`));
  section.append(h("div", { class: "facts" }, figures));
  for (const note of [facts.sampled?.words, facts.thumbs?.missing ? facts.thumbs.words : "", ...(overview.notes ?? [])]) {
    if (note) section.append(h("p", { class: "note" }, own(note)));
  }
}

/** The files themselves: outcome of reading, formats, classes and sizes. */
function drawFiles({ overview }, section) {
  const { classes, sizes } = overview;
  const total = overview.status.reduce((sum, [, n]) => sum + n, 0);
  const files = h("div", { class: "stack" });
  const panels = h("div", { class: "panels" }, files);
  const histograms = h("div", { class: "panels" });
  if (overview.status.length > 1) files.append(panel("Outcome of reading", bars(overview.status, { total, colour: (name) => (name === "ok" ? "kept" : "failed") })));
  if (overview.format?.length) files.append(panel("Formats", bars(overview.format, { total })));
  if (classes?.shown.length) {
    const shown = h("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Classes by size" }, bars(classes.shown, { total, onname: showClass }));
    const more = classes.others ? h("p", { class: "soft" }, `${plural(classes.others, "image")} in ${count(classes.n_classes - classes.shown.length)} more classes`) : null;
    panels.append(panel(`Classes: ${count(classes.n_classes)}`, shown, ...(more ? [more] : [])));
  }
  for (const [name, words, unit] of [["width", "Width in pixels", number], ["height", "Height in pixels", number], ["n_bytes", "Size of the files", bytes]]) {
    const hist = sizes?.[name];
    if (hist?.counts.length) histograms.append(panel(words, histogram(hist, { name: words.toLowerCase(), height: 170, unit })));
  }
  section.append(panels, histograms);
}

/** Show the images of a class. */
function showClass(name) {
  askFor({ gallery: "all", klass: name });
  goTo("images");
}
