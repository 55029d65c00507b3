// Each score: its distribution, its cuts, and how classes differ in it.

/** Return a small outline of a histogram, for the list of scores. */
function sparkline(hist) {
  const most = Math.max(1, ...hist.counts);
  const wide = 100 / hist.counts.length;
  const line = hist.counts.map((n, at) => `L${(at * wide).toFixed(2)} ${(28 - (26 * n) / most).toFixed(2)}H${((at + 1) * wide).toFixed(2)}`).join("");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", `M0 28${line}V28Z`);
  svg.setAttribute("viewBox", "0 0 100 28");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.append(path);
  return svg;
}

/** Return which way a score goes, in words. */
function directionOf(column) {
  if (!column || !column.direction) return "";
  return column.direction > 0 ? "higher = more certain" : "higher = less certain";
}

function drawDistributions(facts, section) {
  const known = new Map(facts.columns.map((column) => [column.name, column]));
  const shown = h("div", { class: "panel" });
  const list = h("div", { class: "scores", role: "group", "aria-label": "Scores" });
  const show = (distribution) => {
    for (const button of list.children) button.setAttribute("aria-pressed", String(button.dataset.column === distribution.column));
    shown.replaceChildren(...drawDistribution(distribution, known.get(distribution.column), facts.labelOf(distribution.column)));
  };
  const isDefault = ({ column }) => column === facts.default_score;
  const order = [...facts.distributions].sort((a, b) => isDefault(b) - isDefault(a)); // the others stay as they are
  for (const distribution of order) {
    const { column } = distribution;
    const words = known.get(column)?.words ?? "";
    list.append(
      h("button", { type: "button", "data-column": column, title: words, onclick: () => show(distribution) },
        sparkline(distribution.hist), own(facts.labelOf(column)), distribution.cuts.length ? h("small", { class: "cut" }, "cut") : null),
    );
  }
  section.append(h("div", { class: "chosen" }, list, shown));
  show(order[0]);
}

function drawDistribution({ column, hist, cuts, by_class: byClass }, about, name) {
  const words = [about?.words, directionOf(about)].filter(Boolean).join(" · ");
  const onbin = (from, to) => {
    askFor({ gallery: "all", column, min: from, max: to });
    goTo("images");
  };
  const parts = [
    h("h3", {}, own(name)),
    words ? h("p", { class: "soft" }, own(words)) : null,
    histogram(hist, { name, cuts, onbin }),
    h("p", { class: "soft" }, `Median ${number(quantile(hist, 0.5))}; nine in ten lie between ${number(quantile(hist, 0.05))} and ${number(quantile(hist, 0.95))}. A bar, clicked, shows its images.`),
    ...cuts.map((cut) => h("p", { class: "cut" }, "Cut at ", number(cut.value), ": ", own(cut.words))),
  ];
  if (byClass?.length) {
    const all = classBoxes(byClass);
    parts.push(h("h4", {}, "By class"), h("p", { class: "soft" }, "Box: the middle half; line: the median; whiskers: 5 % and 95 %. A class, clicked, shows its images."), all);
  }
  return parts.filter(Boolean);
}

/** Return box plots of a score, one a class, in the order of their medians. */
function classBoxes(byClass) {
  const order = [...byClass].sort((a, b) => a.q[2] - b.q[2]);
  const words = `Medians by class, lowest first: ${order.map(({ name, q }) => `${name} ${number(q[2])}`).join(", ")}`;
  const option = (colours) => ({
    grid: { left: 8, right: 16, top: 4, bottom: 8, containLabel: true },
    tooltip: tooltip(colours, ({ dataIndex }) => {
      const { name, n, q } = order[dataIndex];
      return `${shortened(name, 60)}\n${plural(n, "image")}\nmedian ${number(q[2])}\nmiddle half ${number(q[1])} to ${number(q[3])}\n5 % ${number(q[0])}, 95 % ${number(q[4])}`;
    }),
    xAxis: axis(colours, { type: "value", scale: true }),
    yAxis: axis(colours, {
      type: "category",
      data: order.map(({ name }) => shortened(name, innerWidth < 600 ? 12 : 22)),
      splitLine: { show: false },
      axisLabel: { color: colours.ink, fontSize: 11, interval: 0 },
    }),
    series: [{ type: "boxplot", data: order.map(({ q }) => q), boxWidth: [5, 14], itemStyle: { color: colours.box, borderColor: colours.accent, borderWidth: 1.5 } }],
  });
  const ready = (instance) => instance.on("click", ({ dataIndex }) => showClass(order[dataIndex].name));
  return chart(option, { words, height: 24 * order.length + 44, ready });
}
