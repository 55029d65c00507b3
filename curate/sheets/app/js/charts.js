// Charts: drawn by ECharts on a canvas once they are looked at, redrawn when the theme changes.

// Okabe and Ito's colours, which people with any colour vision tell apart, and two more greys.
const CLASS_COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#8a8f98"];
// From sure (blue) over grey to unsure (orange): a pair of colours that all can tell apart, on light and on dark.
const RAMPS = {
  light: [[0, 78, 150], [128, 132, 140], [205, 85, 0]],
  dark: [[120, 190, 250], [150, 152, 158], [255, 150, 70]],
};

const drawn = new Set(); // charts on the page: [element, draw]

/** Return the colour at `share` of the ramp, as CSS. */
function rampColour(share, opacity = 1) {
  const ramp = RAMPS[isDark() ? "dark" : "light"];
  const place = Math.max(0, Math.min(1, share)) * (ramp.length - 1);
  const from = ramp[Math.floor(place)];
  const to = ramp[Math.ceil(place)];
  const mixed = from.map((value, at) => Math.round(value + (to[at] - value) * (place % 1)));
  return `rgba(${mixed.join(",")},${opacity})`;
}

/** Return the colours of the theme that is on. */
function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return { ink: of("ink"), soft: of("soft"), line: of("line"), panel: of("panel"), accent: of("accent"), drop: of("drop"), box: of("box") };
}

/**
 * Return a chart's place on the page. It is drawn when it comes into view.
 *
 * @param {(colours: object) => object} option what ECharts is to draw, in the colours of the theme.
 * @param {{words: string, height: number, ready?: (chart: object) => void}} about its alternative text, its height in
 *   pixels, and what else is to be done with it, each time it is drawn anew.
 */
function chart(option, { words, height, ready }) {
  const element = h("div", { class: "chart", role: "img", "aria-label": words });
  element.style.height = `${height}px`;
  let instance = null;
  const draw = () => {
    if (!instance) {
      instance = echarts.init(element, null, { renderer: "canvas" });
      new ResizeObserver(() => instance.resize()).observe(element);
      if (ready) ready(instance);
    }
    instance.setOption({ animation: false, textStyle: { fontFamily: "system-ui, sans-serif" }, ...option(themeColours()) }, true);
  };
  const seen = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting) || !window.echarts) return;
      seen.disconnect();
      requestAnimationFrame(draw);
      drawn.add([element, draw]);
    },
    { rootMargin: "200px" },
  );
  whenWhole(() => seen.observe(element));
  return element;
}

/** Run a function once all of the page is there; text comes before pictures and charts. */
function whenWhole(run) {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", run, { once: true });
  else run();
}

changes.addEventListener("theme", () => {
  for (const entry of drawn) {
    if (entry[0].isConnected) entry[1]();
    else drawn.delete(entry);
  }
});

/** Return what all tooltips share: text drawn on the canvas, so that no name of the user's becomes markup. */
function tooltip(colours, formatter) {
  return {
    trigger: "item",
    renderMode: "richText",
    confine: true,
    backgroundColor: colours.panel,
    borderColor: colours.line,
    textStyle: { color: colours.ink, fontSize: 12 },
    formatter: (point) => plainText(formatter(point)),
  };
}

/** Return text in which ECharts finds no markup of its own, on lines of bounded length. */
function plainText(text) {
  return String(text).replaceAll("{", "(").replaceAll("|", "¦").replaceAll("}", ")").slice(0, 400);
}

/** Return a name short enough for an axis. */
function shortened(name, most = 22) {
  return tail(plainText(name).replace(/\s+/g, " "), most);
}

function axis(colours, more = {}) {
  return {
    axisLine: { lineStyle: { color: colours.line } },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: colours.line, opacity: 0.6 } },
    axisLabel: { color: colours.soft, fontSize: 11, hideOverlap: true, formatter: number },
    nameTextStyle: { color: colours.soft, fontSize: 11 },
    ...more,
  };
}

/** Return the value below which a share of a histogram lies, interpolated within its bin. */
function quantile(hist, share) {
  const total = hist.counts.reduce((sum, n) => sum + n, 0);
  let left = share * total;
  for (let at = 0; at < hist.counts.length; at += 1) {
    if (left <= hist.counts[at] && hist.counts[at]) {
      return hist.edges[at] + (left / hist.counts[at]) * (hist.edges[at + 1] - hist.edges[at]);
    }
    left -= hist.counts[at];
  }
  return hist.edges.at(-1);
}

/** Return the share of a histogram that lies below a value. */
function shareBelow(hist, value) {
  const total = hist.counts.reduce((sum, n) => sum + n, 0);
  let below = 0;
  hist.counts.forEach((n, at) => {
    const [from, to] = [hist.edges[at], hist.edges[at + 1]];
    below += n * (value >= to ? 1 : value <= from ? 0 : (value - from) / (to - from));
  });
  return total ? below / total : 0;
}

/**
 * Return a histogram.
 *
 * @param {{edges: number[], counts: number[], log: boolean}} hist bins and what is in them.
 * @param {{name: string, cuts?: object[], height?: number, onbin?: (from: number, to: number) => void}} about
 */
function histogram(hist, { name, cuts = [], height = 260, onbin = null, unit = number }) {
  const total = hist.counts.reduce((sum, n) => sum + n, 0);
  const words =
    `Histogram of ${name}: ${plural(total, "image")}, median ${unit(quantile(hist, 0.5))}, ` +
    `5 % below ${unit(quantile(hist, 0.05))}, 5 % above ${unit(quantile(hist, 0.95))}` +
    cuts.map((cut) => `, cut at ${unit(cut.value)} (${cut.words})`).join("");
  const bins = hist.counts.map((n, at) => [hist.edges[at], hist.edges[at + 1], n]);
  const option = (colours) => ({
    grid: { left: 8, right: 16, top: cuts.length ? 34 : 10, bottom: 8, containLabel: true },
    tooltip: tooltip(colours, ({ value }) => `${unit(value[0])} to ${unit(value[1])}\n${plural(value[2], "image")}, ${percent(value[2], total)}`),
    xAxis: axis(colours, {
      type: hist.log ? "log" : "value",
      min: hist.edges[0],
      max: hist.edges.at(-1),
      splitLine: { show: false },
      axisLabel: { color: colours.soft, fontSize: 11, hideOverlap: true, formatter: unit, showMinLabel: false, showMaxLabel: false },
    }),
    yAxis: axis(colours, { type: "value", splitNumber: 3, minInterval: 1 }),
    series: [
      {
        type: "custom",
        encode: { x: [0, 1], y: 2 },
        clip: true,
        data: bins,
        itemStyle: { color: colours.accent },
        renderItem: (_, api) => {
          const [left, top] = api.coord([api.value(0), api.value(2)]);
          const [right, bottom] = api.coord([api.value(1), 0]);
          const wide = Math.max(1, right - left - 1);
          return {
            type: "rect",
            shape: { x: left, y: top, width: wide, height: bottom - top, r: [Math.min(2, wide / 2), Math.min(2, wide / 2), 0, 0] },
            style: { fill: colours.accent },
            emphasis: { style: { fill: colours.drop } },
          };
        },
        markLine: {
          silent: true,
          symbol: "none",
          lineStyle: { color: colours.drop, width: 2, type: "solid" },
          label: { color: colours.drop, fontSize: 11, formatter: ({ data }) => shortened(data.name, 34) },
          data: cuts.map((cut) => ({ xAxis: cut.value, name: cut.words })),
        },
      },
    ],
  });
  const ready = (instance) => onbin && instance.on("click", ({ value }) => onbin(value[0], value[1]));
  return chart(option, { words, height, ready });
}
