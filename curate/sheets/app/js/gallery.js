// Galleries: lists of images, drawn a page at a time as they are looked at.

const TILES = 60; // a page of tiles

/** Return all galleries: what the report found, and every row there is. */
function galleriesOf(facts) {
  const all = { id: "all", title: "All rows", words: facts.sampled ? facts.sampled.words : "Every row of the table.", kind: "all" };
  return [...(facts.galleries ?? []), all];
}

/** Show some rows as a gallery, which takes the place of one with the same id. */
function showRows(report, rows, about) {
  const gallery = { ...about, kind: "flat", items: rows.map((row) => row.id), rows };
  report.galleries = [...report.galleries.filter(({ id }) => id !== about.id), gallery];
  query.gallery = "";
  askFor({ gallery: about.id, search: "", klass: "", decision: "", min: null, max: null });
  goTo("images");
}

function sizeOf(gallery, source) {
  return gallery.kind === "all" ? source.n : new Set(groupsOf(gallery).flatMap((group) => group.items)).size;
}

/** Return the pages of a gallery under the filters: next() gives up to TILES entries, {head} or {row, mark}. */
async function listing(gallery, report) {
  const { source, facts } = report;
  const asked = { ...query };
  const rows = [];
  if (gallery.kind === "all") {
    let total = null;
    const next = async () => {
      const page = await source.rows({ ...asked, offset: rows.length, limit: TILES });
      total = page.total;
      rows.push(...page.rows);
      return page.rows.map((row) => ({ row }));
    };
    return { next, rows, total: () => total, whole: () => total === rows.length, hasMore: () => total === null || rows.length < total };
  }
  const lists = gallery.rows ? [gallery.rows] : await source.gallery(gallery);
  const entries = [];
  groupsOf(gallery).forEach((group, at) => {
    const wanted = sorted(lists[at].filter((row) => matches(row, asked, facts.class_column)), asked.sort, asked.descending);
    if (!wanted.length) return;
    if (group.words) entries.push({ head: group.words, n: wanted.length });
    for (const row of wanted) {
      rows.push(row);
      entries.push({ row, mark: row.id === group.kept ? "kept" : "" });
    }
  });
  let drawn = 0;
  const next = async () => entries.slice(drawn, (drawn += TILES));
  const total = new Set(rows.map(({ id }) => id)).size; // a row may be in several groups
  return { next, rows, total: () => total, whole: () => true, hasMore: () => drawn < entries.length };
}

function drawImages(report, section) {
  const { facts, source } = report;
  const galleries = galleriesOf(facts);
  report.galleries = galleries;
  query.gallery = query.gallery || galleries[0].id;
  query.column = query.column || facts.default_score || facts.columns.find(({ kind }) => kind === "score" || kind === "number")?.name || "";
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Galleries" });
  const about = h("p", { class: "soft" });
  const told = h("output", { class: "total" });
  const body = h("div", { class: "gallery" });
  const more = h("button", { type: "button", class: "more", onclick: () => fill() }, "Show more");
  const tickAll = h("button", { type: "button", onclick: () => ticks.set(current.rows, true) }, "Tick all");
  let current = { rows: [], hasMore: () => false };
  let busy = false;
  let list = null; // the <ul> that tiles go into

  const range = (row) => {
    const rows = current.rows;
    const [from, to] = [rows.indexOf(report.lastTicked), rows.indexOf(row)];
    return from < 0 ? [row] : rows.slice(Math.min(from, to), Math.max(from, to) + 1);
  };
  body.addEventListener("click", (event) => {
    if (event.target.type === "checkbox") report.lastTicked = event.target.closest(".tile").row;
  });

  const fill = async () => {
    const mine = current;
    if (busy || !mine.hasMore()) return;
    busy = true;
    try {
      const page = await mine.next();
      if (mine !== current) return;
      const column = query.sort && query.sort !== "key" ? query.sort : query.column;
      const first = !list; // the first group has its heading, or none
      for (const { head, n, row, mark } of page) {
        if (head !== undefined || !list) body.append(groupOf((list = h("ul", { class: "tiles" })), head, n));
        if (row) list.append(tile(row, report, { mark, column, onlook: (looked) => report.look(looked, current), onrange: range }));
      }
      if (first) tell(mine);
      tickAll.textContent = mine.whole() ? `Tick all ${count(mine.total())}` : `Tick the ${count(mine.rows.length)} shown`;
    } catch (error) {
      body.append(h("p", { class: "note", role: "alert" }, own(`The rows did not come: ${error.message}`)));
      mine.hasMore = () => false;
    } finally {
      if (mine === current) {
        busy = false;
        more.hidden = !mine.hasMore();
      }
    }
    if (mine === current && mine.hasMore() && more.getBoundingClientRect().top < innerHeight + 600) requestAnimationFrame(fill);
  };

  const tell = (mine) => {
    const total = mine.total();
    const words = total ? plural(total, "image") : "No image is like that.";
    told.textContent = isFiltered() && total ? `${words}, filtered` : words;
    say(told.textContent);
    tickAll.hidden = !total;
  };

  const show = async () => {
    const gallery = report.galleries.find(({ id }) => id === query.gallery) ?? report.galleries.at(-1);
    drawTabs();
    about.replaceChildren(own(gallery.words ?? ""));
    const mine = {};
    current = { rows: [], hasMore: () => false, token: mine };
    busy = false;
    let found;
    try {
      found = await listing(gallery, report);
    } catch (error) {
      body.replaceChildren(h("p", { class: "note", role: "alert" }, own(`The rows did not come: ${error.message}`)));
      return;
    }
    if (current.token !== mine) return; // something else was asked for meanwhile
    current = found;
    list = null;
    body.replaceChildren();
    more.hidden = true;
    if (gallery.kind !== "all") tell(found);
    await fill();
  };
  report.more = async (mine) => mine === current && (await fill());

  const drawTabs = () => {
    tabs.replaceChildren(
      ...report.galleries.map((gallery) =>
        h("button", { type: "button", "data-gallery": gallery.id, "aria-pressed": String(gallery.id === query.gallery), onclick: () => askFor({ gallery: gallery.id }) },
          own(gallery.title), h("small", {}, ` ${count(sizeOf(gallery, source))}`)),
      ),
    );
  };

  const size = h("input", { type: "range", min: "72", max: "256", step: "8", value: "128", "aria-label": "Size of the pictures", oninput: () => body.style.setProperty("--tile", `${size.value}px`) });
  section.append(tabs, about, filterFields(report), h("div", { class: "above" }, told, sortFields(report), size, tickAll), body, more);
  changes.addEventListener("query", show);
  whenWhole(() => {
    new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && fill(), { rootMargin: "800px" }).observe(more);
    show();
  });
  walkByArrows(body);
}

/** Return the place of a group: as wide as its tiles, so that small groups stand side by side. */
function groupOf(list, head, n) {
  const group = h("div", { class: "group" }, head === undefined ? null : h("h3", {}, own(head), isFiltered() ? h("small", {}, ` ${count(n)}`) : null), list);
  group.style.setProperty("--n", n ?? 1000);
  return group;
}

/** Let arrow keys walk over the tiles; up and down go by where they stand. */
function walkByArrows(body) {
  body.addEventListener("keydown", (event) => {
    const item = event.target.closest(".tile");
    if (!item || event.target.type === "checkbox" || !event.key.startsWith("Arrow")) return;
    const tiles = [...body.querySelectorAll(".tile")];
    const at = tiles.indexOf(item);
    const { left, top } = item.getBoundingClientRect();
    const isNear = (other) => Math.abs(other.getBoundingClientRect().left - left) < 8;
    const next = {
      ArrowRight: () => tiles[at + 1],
      ArrowLeft: () => tiles[at - 1],
      ArrowDown: () => tiles.slice(at + 1).find((other) => other.getBoundingClientRect().top > top && isNear(other)),
      ArrowUp: () => tiles.slice(0, at).reverse().find((other) => other.getBoundingClientRect().top < top && isNear(other)),
    }[event.key]();
    if (!next) return;
    event.preventDefault();
    next.querySelector(".look").focus();
  });
}
