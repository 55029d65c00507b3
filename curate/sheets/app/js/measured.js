// What `evaluate` measured: curves of images that get worse, and tables as it wrote them, the fullest columns first.

function drawMeasured(facts, section) {
  if (facts.strengths?.length) drawStrengths(facts.strengths, section);
  for (const table of facts.measured) {
    const filled = (at) => table.rows.filter((row) => row[at] !== null && row[at] !== "").length;
    const order = table.columns.map((_, at) => at).sort((a, b) => (a && b ? filled(b) - filled(a) : a - b));
    const columns = order.map((at) => table.columns[at]);
    const rows = table.rows.map((row) => order.map((at) => row[at]));
    const kinds = columns.map((_, at) => kindOf(rows.map((row) => row[at])));
    const cell = (value, at) => (at ? h("td", { class: kinds[at] }, own(number(value))) : h("th", { scope: "row" }, own(number(value))));
    section.append(
      h("div", { class: "panel scrolled", tabindex: "0", role: "region", "aria-label": table.title },
        h("table", { class: "measured" },
          h("caption", {}, own(table.title)),
          h("thead", {}, h("tr", {}, columns.map((name, at) => h("th", { scope: "col", class: kinds[at] }, own(name))))),
          h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell)))))),
    );
  }
}

/** Return how a column is set: numbers to the right, sentences on several lines. */
function kindOf(values) {
  if (values.some((value) => typeof value === "number")) return "n";
  return values.some((value) => String(value ?? "").length > 48) ? "long" : "";
}

const DASHES = [null, [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 2, 1, 2]];

/** Draw how uncertain images are said to be as they get worse: a chart a kind, a line with its band a score. */
function drawStrengths(kinds, section) {
  const names = Object.keys(kinds[0].columns);
  const colour = (at) => CLASS_COLOURS[at % CLASS_COLOURS.length];
  const legend = h("ul", { class: "legend", "aria-label": "Scores" }, names.map((name, at) => {
    const dot = h("span", { class: "dot", "aria-hidden": "true" });
    dot.style.backgroundColor = colour(at);
    return h("li", {}, dot, own(name));
  }));
  const charts = kinds.map((one) => h("figure", { class: "strength" },
    h("figcaption", {}, own(`${one.kind}: ${one.unit}`)),
    chart((colours) => strengthOption(one, names, colour, colours), { words: strengthWords(one, names), height: 220 })));
  section.append(
    h("p", { class: "soft" }, "Images made worse, strength by strength: the mean share of unchanged images that a score calls more certain, with 95 % intervals over images. Half is what unchanged images have."),
    legend,
    h("div", { class: "strengths" }, charts),
  );
}

function strengthWords({ kind, unit, strength, columns }, names) {
  const last = names.map((name) => `${name} ${percent(columns[name].value.at(-1), 1)}`).join(", ");
  return `Less certain with more ${kind}; at ${number(strength.at(-1))} (${unit}): ${last}`;
}

function strengthOption({ strength, columns }, names, colour, colours) {
  const lines = names.filter((name) => columns[name]).map((name, at) => ({ name, at, ...columns[name] }));
  const points = lines.flatMap((line) => strength.map((x, at) => ({ value: [x, line.value[at]], name: line.name, low: line.low[at], high: line.high[at], itemStyle: { color: colour(line.at) } })));
  return {
    grid: { left: 8, right: 16, top: 10, bottom: 8, containLabel: true },
    tooltip: tooltip(colours, ({ data }) => `${data.name}\nat ${number(data.value[0])}: ${percent(data.value[1], 1)}, ${percent(data.low, 1)} to ${percent(data.high, 1)}`),
    xAxis: axis(colours, { type: "value", min: strength[0], max: strength.at(-1), splitLine: { show: false } }),
    yAxis: axis(colours, { type: "value", min: 0, max: 1, interval: 0.25, axisLabel: { color: colours.soft, fontSize: 11, formatter: (value) => `${Math.round(100 * value)} %` } }),
    series: [
      {
        type: "custom",
        silent: true,
        clip: true,
        data: lines.map(({ at }) => [strength[0], 0.5, at]),
        renderItem: (_, api) => {
          const line = lines[api.value(2)];
          const path = (values) => strength.map((x, at) => api.coord([x, values[at]]));
          return {
            type: "group",
            children: [
              { type: "polygon", shape: { points: [...path(line.high), ...path(line.low).reverse()] }, style: { fill: colour(line.at), opacity: 0.18 } },
              { type: "polyline", shape: { points: path(line.value) }, style: { stroke: colour(line.at), lineWidth: 2, fill: "none", lineDash: DASHES[line.at % DASHES.length] } },
            ],
          };
        },
      },
      { type: "scatter", symbolSize: 7, data: points },
    ],
  };
}
