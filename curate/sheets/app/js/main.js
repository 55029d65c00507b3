// The sections, in their order, and what each needs; one without facts is not there.

const SECTIONS = [
  { id: "overview", title: "Overview", has: () => true, draw: ({ facts }, section) => drawOverview(facts, section) },
  { id: "funnel", title: "What was decided", has: (facts) => facts.funnel?.length, draw: ({ facts }, section) => drawFunnel(facts, section) },
  { id: "images", title: "Images", has: (facts) => facts.n_rows > 0, draw: drawImages },
  { id: "distributions", title: "Scores", has: (facts) => facts.distributions?.length, draw: ({ facts }, section) => drawDistributions(facts, section) },
  { id: "files", title: "Files", has: hasFiles, draw: ({ facts }, section) => drawFiles(facts, section) },
  { id: "map", title: "Map", has: (facts) => facts.map?.row.length, draw: drawMap },
  { id: "ranks", title: "Scores against each other", has: (facts) => facts.ranks?.columns.length > 1, draw: drawAgainst },
  { id: "measured", title: "What was measured", has: (facts) => facts.measured?.length, draw: ({ facts }, section) => drawMeasured(facts, section) },
];

/** Whether there is something to draw of the files. */
function hasFiles({ overview }) {
  const { status, format, classes, sizes } = overview;
  return status.length > 1 || format?.length || classes?.shown.length || Object.values(sizes ?? {}).some((hist) => hist?.counts.length);
}

function goTo(id) {
  const section = byId(id);
  if (!section) return;
  const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  section.scrollIntoView({ behavior: isStill ? "auto" : "smooth" });
  section.querySelector("h2").focus({ preventScroll: true });
}

function drawHead({ about, title }) {
  byId("title").replaceChildren(own(title));
  const made = about.made ? new Date(about.made) : null;
  const parts = [about.table, about.model && `model ${about.model}`, made && !Number.isNaN(made.valueOf()) && made.toISOString().slice(0, 16).replace("T", " "), about.curate && `curate ${about.curate}`];
  byId("about").replaceChildren(...parts.filter(Boolean).flatMap((part, at) => [at ? " · " : "", own(part)]));
}

/** Mark the section that is being read in the navigation. */
function followReading(links) {
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        for (const [id, link] of links) link.toggleAttribute("aria-current", id === target.id);
        const link = links.get(target.id);
        link.parentElement.scrollTo({ left: link.offsetLeft - 60 });
      }
    },
    { rootMargin: "-20% 0px -70% 0px" },
  );
  for (const id of links.keys()) seen.observe(byId(id));
}

function main() {
  const facts = JSON.parse(byId("facts").textContent);
  const report = { facts, galleries: [], look: () => {}, source: null };
  const labels = new Map(facts.columns.map(({ name, label }) => [name, label ?? name]));
  facts.labelOf = (name) => labels.get(name) ?? name; // a column as its table calls it
  makeTheme();
  drawHead(facts);
  const links = new Map();
  const wanted = SECTIONS.filter(({ has }) => has(facts));
  for (const { id, title } of wanted) {
    byId("main").append(h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title`, tabindex: "-1" }, title)));
    const link = h("a", { href: `#${id}` }, title);
    links.set(id, link);
    byId("nav").append(link);
  }
  const base = document.documentElement.dataset.base;
  report.source = base ? served(facts, base) : inlined(facts);
  makeDetail(report);
  for (const { id, draw } of wanted) draw(report, byId(id));
  makeTray(report);
  makeKeys();
  ticks.restore(facts.about.digest ?? facts.title);
  followReading(links);
}

main();
