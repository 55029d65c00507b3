// One image in full: what it is, what was decided, and where its scores stand among the others.

/** Give the report its dialog of one image. */
function makeDetail(report) {
  const { facts } = report;
  const hists = new Map((facts.distributions ?? []).map(({ column, hist }) => [column, hist]));
  const dialog = byId("detail");
  let listed = null; // what previous and next go through
  let row = null;

  const step = async (by) => {
    let at = listed.rows.indexOf(row) + by;
    if (at >= listed.rows.length && listed.hasMore?.()) await report.more?.(listed);
    at = Math.max(0, Math.min(listed.rows.length - 1, at));
    if (listed.rows[at] !== row) show(listed.rows[at]);
  };

  const show = (shown) => {
    row = shown;
    const place = listed.rows.indexOf(row);
    const box = h("input", { type: "checkbox", onclick: (event) => ticks.set([row], event.target.checked) });
    box.checked = ticks.keys.has(row.number);
    const head = h(
      "div",
      { class: "detail-head" },
      h("button", { type: "button", class: "icon", "aria-label": "Previous image", title: "Previous (←)", disabled: place <= 0, onclick: () => step(-1) }, "←"),
      h("button", { type: "button", class: "icon", "aria-label": "Next image", title: "Next (→)", onclick: () => step(1) }, "→"),
      h("span", { class: "soft" }, place < 0 ? "" : `${count(place + 1)} of ${count(Math.max(listed.total?.() ?? 0, listed.rows.length))}`),
      h("label", { class: "ticker" }, box, " Tick"),
      h("button", { type: "button", class: "icon", "aria-label": "Close", title: "Close (Esc)", onclick: () => dialog.close() }, "×"),
    );
    dialog.replaceChildren(head, h("div", { class: "detail-body" }, h("div", { class: "portrait" }, portrait(row, report)), details(row, report, hists)));
    dialog.dataset.number = row.number;
    dialog.setAttribute("aria-label", `Image ${row.key}`);
    if (dialog.open) dialog.querySelector("[aria-label='Next image']").focus(); // what had the focus is gone
  };

  report.look = (shown, among) => {
    listed = among.rows.includes(shown) ? among : { rows: [shown] };
    const from = document.activeElement;
    show(shown);
    if (!dialog.open) {
      dialog.showModal();
      dialog.querySelector("[aria-label='Next image']").focus();
      dialog.addEventListener("close", () => {
        const seen = document.querySelector(`.tile[data-number="${Number(row.number)}"] .look`);
        (seen ?? from)?.focus();
      }, { once: true });
    }
  };
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) step(by);
    else if (event.key === "x") ticks.set([row], !ticks.keys.has(row.number));
  });
  changes.addEventListener("ticks", () => {
    if (dialog.open && row) dialog.querySelector("input").checked = ticks.keys.has(row.number);
  });
}

/** Return the facts of a row: names on the left, values on the right, scores with their place among all. */
function details(row, report, hists) {
  const { facts } = report;
  const list = h("dl", {});
  const line = (name, ...value) => list.append(h("dt", {}, own(name)), h("dd", {}, ...value));
  const copied = (text) => h("button", { type: "button", class: "plain copy", onclick: () => copyText(text) }, "copy");
  line("key", own(row.key), " ", copied(row.key));
  const path = row.get("path");
  if (path) line("path", own(path), " ", copied(String(path)));
  line("row", count(row.number));
  for (const name of ["status", "decision", "reason"]) {
    const value = row.get(name);
    if (value === null || value === "") continue;
    line(name, name === "decision" ? h("span", { class: `badge ${value}` }, OUT[value] ?? value) : own(value));
  }
  for (const { name, words } of facts.columns) {
    const value = row.get(name);
    if (value === null) continue;
    const hist = hists.get(name);
    if (typeof value !== "number") {
      line(facts.labelOf(name), own(value));
      continue;
    }
    const share = hist ? shareBelow(hist, value) : null;
    const bar = share === null ? null : h("span", { class: "standing", title: `higher than ${percent(share, 1)} of the images` }, widthOf(h("span", {}), share));
    line(facts.labelOf(name), h("span", { class: "value", title: words }, number(value)), bar, share === null ? null : h("small", { class: "soft" }, ` > ${(100 * share).toFixed(0)} %`));
  }
  const within = (report.galleries ?? []).filter((gallery) => gallery.kind !== "all" && groupsOf(gallery).some((group) => group.items.includes(row.id)));
  if (within.length) {
    line("also in", ...within.map((gallery) => h("button", {
      type: "button",
      class: "chip",
      onclick: () => {
        byId("detail").close();
        askFor({ gallery: gallery.id });
        goTo("images");
      },
    }, own(gallery.title))));
  }
  return list;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    const area = h("textarea", { class: "unseen" }, text); // where the clipboard is not given to pages from disk
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    say("Copied.");
  }
}
