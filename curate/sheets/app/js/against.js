// Scores against each other: how alike they rank, and one beside the other.

/** Return the colour of a rank correlation: blue for alike, orange for opposite, nothing for neither. */
function rhoColour(rho) {
  const [r, g, b] = rho >= 0 ? [0, 114, 178] : [213, 94, 0];
  return `rgba(${r},${g},${b},${(0.75 * Math.abs(rho)).toFixed(3)})`;
}

function drawAgainst(report, section) {
  const { columns, rho, n } = report.facts.ranks;
  const { labelOf } = report.facts;
  const place = h("div", { class: "panel" });
  const table = h("table", { class: "rho" });
  const cells = [];
  const show = (a, b) => {
    for (const cell of cells) cell.setAttribute("aria-pressed", String(cell.dataset.pair === `${a},${b}`));
    drawPair(report, columns[a], columns[b], rho[a][b], place);
  };
  table.append(h("thead", {}, h("tr", {}, h("td", {}), columns.map((name) => h("th", { scope: "col" }, own(labelOf(name)))))));
  table.append(h("tbody", {}, columns.map((name, a) => h("tr", {}, h("th", { scope: "row" }, own(labelOf(name))), columns.map((other, b) => {
    if (a === b) return h("td", {}, h("span", { class: "self", "aria-label": "itself" }, "1"));
    const value = rho[a][b];
    const cell = h("button", { type: "button", "data-pair": `${a},${b}`, "aria-pressed": "false", "aria-label": `${labelOf(name)} and ${labelOf(other)}: ${value === null ? "unknown" : value.toFixed(2)}`, onclick: () => show(a, b) }, value === null ? "–" : value.toFixed(2).replace("-", "−"));
    if (value !== null) {
      cell.style.backgroundColor = rhoColour(value);
    }
    cells.push(cell);
    return h("td", {}, cell);
  })))));
  section.append(h("div", { class: "pairs" }, h("div", { class: "panel scrolled", tabindex: "0", role: "region", "aria-label": "Rank correlations" }, h("p", { class: "soft" }, `Spearman's rank correlation over ${plural(n, "image")}. A cell, clicked, draws its pair.`), table), place));
  const first = Math.max(0, columns.indexOf(report.facts.default_score));
  whenWhole(() => show(first, first ? 0 : 1));
}

/** Return rows behind a server to draw: those of the map, which were drawn by chance, else the first. */
async function drawnRows({ source, facts }) {
  if (facts.map) return source.at(facts.map.row);
  const { rows } = await source.rows({ sort: "", search: "", klass: "", decision: "", min: null, max: null, offset: 0, limit: 1000 });
  return rows;
}

async function drawPair(report, a, b, rho, place) {
  const { source, facts } = report;
  place.wanted = `${a} ${b}`;
  const rows = source.whole ?? (await drawnRows(report));
  if (place.wanted !== `${a} ${b}`) return;
  const points = rows.filter((row) => typeof row.get(a) === "number" && typeof row.get(b) === "number");
  const opacity = points.length > 5000 ? 0.25 : points.length > 500 ? 0.45 : 0.7;
  const [nameA, nameB] = [facts.labelOf(a), facts.labelOf(b)];
  const option = (colours) => ({
    grid: { left: 12, right: 20, top: 30, bottom: 30, containLabel: true },
    tooltip: tooltip(colours, ({ data }) => `${shortened(points[data[2]].key, 60)}\n${nameA} ${number(data[0])}\n${nameB} ${number(data[1])}`),
    xAxis: axis(colours, { type: "value", scale: true, name: shortened(nameA, 40), nameLocation: "middle", nameGap: 26 }),
    yAxis: axis(colours, { type: "value", scale: true, name: shortened(nameB, 40), nameTextStyle: { color: colours.soft, fontSize: 11, align: "left" } }),
    dataZoom: [{ type: "inside", xAxisIndex: 0, filterMode: "none" }, { type: "inside", yAxisIndex: 0, filterMode: "none" }],
    series: [{ type: "scatter", symbolSize: points.length > 5000 ? 4 : 7, itemStyle: { color: colours.accent, opacity }, data: points.map((row, at) => [row.get(a), row.get(b), at]) }],
  });
  const ready = (instance) => instance.on("click", ({ data }) => report.look(points[data[2]], { rows: [] }));
  const known = rho === null ? "" : `; rank correlation ${rho.toFixed(2)}`;
  const part = source.whole && source.whole.length === facts.n_rows ? "" : " of those shown";
  place.replaceChildren(h("h3", {}, own(nameA), " and ", own(nameB)), chart(option, { words: `${nameB} against ${nameA}, ${plural(points.length, "image")}${part}${known}`, height: 380, ready }), h("p", { class: "soft" }, `${plural(points.length, "image")}${part}${known}. A point, clicked, shows its image.`));
}
