// The map: each image where the embedding puts it; unsure ones large and faint (Kirchhof et al. 2024, "Pretrained Visual Uncertainties", Figure 9).

/** Return little-endian float32 numbers from base64. */
function floats(text) {
  const raw = atob(text);
  const view = new DataView(new ArrayBuffer(raw.length));
  for (let at = 0; at < raw.length; at += 1) view.setUint8(at, raw.charCodeAt(at));
  return Float32Array.from({ length: raw.length / 4 }, (_, at) => view.getFloat32(4 * at, true));
}

/** Whether a point lies inside a polygon: an odd number of its edges is crossed on the way out. */
function isInside([x, y], polygon) {
  let inside = false;
  for (let at = 0, before = polygon.length - 1; at < polygon.length; before = at, at += 1) {
    const [ax, ay] = polygon[at];
    const [bx, by] = polygon[before];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}

/** Return how points are coloured: a function of row and uncertainty, and what the colours mean. */
function colouring(by, rows, facts) {
  if (by === "uncertainty") return { of: (_, unsure) => rampColour(unsure, opacityOf(unsure)), legend: [], classes: new Set() };
  const column = by === "class" ? facts.class_column : "decision";
  const tally = new Map();
  for (const row of rows) {
    const name = String(row?.get(column) ?? "none");
    tally.set(name, (tally.get(name) ?? 0) + 1);
  }
  const names = [...tally].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const fixed = { keep: CLASS_COLOURS[0], drop: CLASS_COLOURS[5], undecided: CLASS_COLOURS[1], failed: CLASS_COLOURS[7] };
  const colours = new Map(names.map((name, at) => [name, (by === "decision" && fixed[name]) || CLASS_COLOURS[Math.min(at, CLASS_COLOURS.length - 1)]]));
  const legend = names.slice(0, CLASS_COLOURS.length - 1).map((name) => [name, colours.get(name)]);
  if (names.length > legend.length) legend.push([`${count(names.length - legend.length)} more`, CLASS_COLOURS.at(-1)]);
  const of = (row, unsure) => {
    const hex = colours.get(String(row?.get(column) ?? "none"));
    return hex + Math.round(255 * opacityOf(unsure)).toString(16).padStart(2, "0");
  };
  return { of, legend, classes: new Set(names) };
}

function opacityOf(unsure) {
  return 0.9 - 0.6 * unsure;
}

async function drawMap(report, section) {
  const { facts, source } = report;
  const { map } = facts;
  const [xs, ys, unsure] = [map.x, map.y, map.uncertainty].map(floats);
  let rows = source.whole ? map.row.map((id) => source.whole[id]) : []; // asked for when colours need them
  const rowOf = async (at) => rows[at] ?? (await source.at([map.row[at]]))[0];
  const order = Array.from(xs, (_, at) => at).sort((a, b) => unsure[b] - unsure[a]); // sure points lie on top
  let by = "uncertainty";
  let instance = null;
  const legend = h("ul", { class: "legend", "aria-label": "Colours" });
  const card = h("div", { class: "card", hidden: true });
  const chosen = h("div", { class: "lassoed", role: "status" });

  const option = (colours) => {
    const paint = colouring(by, rows, facts);
    drawLegend(legend, by, paint.legend, paint.classes);
    const isOut = (at) => isFiltered() && rows[at] && !matches(rows[at], query, facts.class_column);
    const isTicked = (at) => ticks.keys.has(source.whole ? rows[at].number : map.row[at]);
    const scale = xs.length > 4000 ? 0.6 : xs.length > 1000 ? 0.8 : 1.1;
    return {
      grid: { left: 4, right: 4, top: 4, bottom: 4 },
      xAxis: { type: "value", scale: true, show: false },
      yAxis: { type: "value", scale: true, show: false },
      dataZoom: [
        { type: "inside", xAxisIndex: 0, filterMode: "none" },
        { type: "inside", yAxisIndex: 0, filterMode: "none" },
      ],
      brush: { toolbox: [], xAxisIndex: 0, yAxisIndex: 0, throttleType: "debounce", throttleDelay: 100, outOfBrush: {}, brushStyle: { color: "rgba(0,114,178,.12)", borderColor: colours.accent, borderWidth: 2 } },
      series: [
        {
          type: "scatter",
          progressive: 0,
          data: order.map((at) => ({
            value: [xs[at], ys[at]],
            at,
            symbolSize: scale * (5 + 17 * unsure[at] ** 1.5),
            itemStyle: {
              color: paint.of(rows[at], unsure[at]),
              opacity: isOut(at) ? 0.12 : 1,
              borderColor: colours.ink,
              borderWidth: isTicked(at) ? 2 : 0,
            },
          })),
          emphasis: { itemStyle: { borderColor: colours.ink, borderWidth: 2 } },
        },
      ],
    };
  };

  let waiting = 0;
  const redraw = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => instance?.setOption({ series: option(themeColours()).series }, { replaceMerge: ["series"] }), 120);
  };
  changes.addEventListener("query", redraw); // what the filters leave out is dim, what is ticked has a rim
  changes.addEventListener("ticks", redraw);

  const choose = async (polygon) => {
    const inside = order.filter((at) => isInside([xs[at], ys[at]], polygon)).sort((a, b) => a - b);
    const found = source.whole ? inside.map((at) => rows[at]) : await source.at(inside.map((at) => map.row[at]));
    showLassoed(found, report, chosen);
  };

  const ready = (made) => {
    instance = made;
    made.on("mouseover", ({ data, event }) => hover(data.at, event));
    made.on("mouseout", () => (card.hidden = true));
    made.on("click", async ({ data }) => report.look(await rowOf(data.at), { rows: [] }));
    made.on("brushEnd", ({ areas }) => {
      const area = areas[0];
      if (!area) return;
      const [[left, right], [low, high]] = area.brushType === "rect" ? area.coordRange : [[], []];
      choose(area.brushType === "rect" ? [[left, low], [right, low], [right, high], [left, high]] : area.coordRange);
    });
  };
  const hover = async (at, event) => {
    card.wanted = at;
    const row = await rowOf(at);
    if (!row || card.wanted !== at) return;
    const score = facts.default_score;
    card.replaceChildren(picture(row, report), own(tail(row.key, 60), { class: "key" }), h("span", { class: "soft" }, score ? `${facts.labelOf(score)} ${number(row.get(score))} · ` : "", `less certain than ${(100 * unsure[at]).toFixed(0)} %`), own([facts.class_column && row.get(facts.class_column), row.get("decision"), row.get("reason")].filter(Boolean).join(" · ")));
    card.hidden = false;
    const { offsetWidth: wide, offsetHeight: high } = place;
    card.style.left = `${Math.max(4, Math.min(event.offsetX + 16, wide - 190))}px`;
    card.style.top = `${event.offsetY > high / 2 ? Math.max(4, event.offsetY - card.offsetHeight - 12) : event.offsetY + 16}px`;
  };

  const words = `Map of ${plural(xs.length, "image")}, ${map.method}. Similar images lie close together; unsure ones are large and faint. The galleries list the same images for those who do not see it.`;
  const place = h("div", { class: "map" }, chart(option, { words, height: Math.max(320, Math.min(640, innerHeight - 330)), ready }), card, chosen);
  const tool = (kind) => {
    instance?.dispatchAction({ type: "takeGlobalCursor", key: "brush", brushOption: { brushType: kind === "pan" ? false : kind, brushMode: "single" } });
  };
  const reset = () => {
    instance?.dispatchAction({ type: "dataZoom", batch: [0, 1].map((dataZoomIndex) => ({ dataZoomIndex, start: 0, end: 100 })) });
    instance?.dispatchAction({ type: "brush", areas: [] });
    chosen.replaceChildren();
  };
  const colours = [["uncertainty", "Uncertainty"]];
  if (facts.class_column) colours.push(["class", "Class"]);
  if (facts.funnel?.length) colours.push(["decision", "Decision"]);
  const bar = h(
    "div",
    { class: "above" },
    oneOf("Tool", [["pan", "Pan and zoom"], ["polygon", "Lasso"], ["rect", "Box"]], "pan", tool),
    h("button", { type: "button", onclick: reset }, "Reset"),
    colours.length > 1 ? oneOf("Colour by", colours, by, async (wanted) => {
      by = wanted;
      if (!rows.length) rows = await source.at(map.row);
      redraw();
    }) : null,
  );
  section.append(h("p", { class: "soft" }, own([map.words || map.method, map.size_note].filter(Boolean).join(" · "))), bar, place, legend);
}

function drawLegend(legend, by, names, tellable) {
  if (by === "uncertainty") {
    const scale = Array.from({ length: 12 }, (_, at) => {
      const step = h("span", {});
      step.style.backgroundColor = rampColour(at / 11);
      return step;
    });
    legend.replaceChildren(h("li", {}, "sure, small", h("span", { class: "ramp", "aria-hidden": "true" }, scale), "unsure, large and faint"));
    return;
  }
  legend.replaceChildren(...names.map(([name, colour]) => {
    const dot = h("span", { class: "dot", "aria-hidden": "true" });
    dot.style.backgroundColor = colour;
    const words = [dot, own(name)];
    if (by !== "class" || !tellable.has(name)) return h("li", {}, words);
    const toggle = () => askFor({ klass: query.klass === name ? "" : name });
    return h("li", {}, h("button", { type: "button", class: "plain", "aria-pressed": String(query.klass === name), onclick: toggle }, words));
  }));
}

/** Show what a lasso caught, to be ticked or looked at. */
function showLassoed(rows, report, place) {
  const look = () => showRows(report, rows, { id: "lasso", title: "Lasso", words: "What the lasso caught on the map." });
  place.replaceChildren(
    h("strong", {}, `${plural(rows.length, "image")} inside`),
    ...(rows.length ? [
      h("button", { type: "button", class: "strong", onclick: () => ticks.set(rows, true) }, "Tick them"),
      h("button", { type: "button", onclick: () => ticks.set(rows, false) }, "Untick them"),
      h("button", { type: "button", onclick: look }, "Show them"),
    ] : []),
  );
}
