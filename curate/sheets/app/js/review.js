// Groups of suspected images: one decision each, by key or button; the server knows what was decided.

const facts = JSON.parse(byId("facts").textContent);
const base = document.documentElement.dataset.base;
const KEYS = [
  ["k", "keep: these images are all right"],
  ["d", "drop them"],
  ["r", "relabel them, where there are labels"],
  ["i", "of a drawn sample: you cannot tell"],
  ["s", "split the group into two that are more alike"],
  ["n or space", "skip, for now"],
  ["u", "undo the last decision"],
  ["arrows", "from image to image"],
  ["x or click", "take an image out of the decision, or put it back"],
  ["z", "look at the image in full"],
  ["v", "all images of the group, a page at a time"],
  ["a", "a random sample of what is kept: how much of it is bad?"],
  ["?", "this help"],
];
const VERBS = { image: ["Keep", "Drop"], copy: ["Keep both", "Drop the copies"], label: ["Label is right", "Drop"], leak: ["Keep", "Drop"] };
const UNSURE = "I cannot tell";
const OF_KIND = { "dropped-copy": () => ["Bring back", "Leave dropped"], sample: (question) => OF_SAMPLE[question] };
const OF_SAMPLE = { image: ["Good", "Bad"], copy: ["Two images", "The same"], label: ["Label is right", "Neither"] };

let state = null; // as the server has it
let group = null; // under review, with its images
let page = null; // offset among all images of the group; null for those that stand for it
let sampling = false;
let busy = false;
const skipped = []; // ids, the last one skipped last
const out = new Set(); // rows taken out of the decision

async function ask(path, sent) {
  const options = sent ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(sent) } : {};
  let answer;
  try {
    answer = await fetch(base + path, { cache: "no-store", ...options });
  } catch {
    throw new Error("the server is gone: start curate review again; every decision so far is on the disk");
  }
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error ?? answer.statusText);
  return value;
}

function queue() {
  const at = (one) => skipped.indexOf(one.id);
  return [...state.queue.filter((one) => at(one) < 0), ...state.queue.filter((one) => at(one) >= 0).sort((a, b) => at(a) - at(b))];
}

/** Show a group, or the next one where it is decided. */
async function go(id) {
  const waiting = queue();
  const next = waiting.find((one) => one.id === id) ?? waiting[0] ?? null;
  if (!group || !next || next.id !== group.id) page = null;
  sampling = false;
  out.clear();
  group = next ? await ask(`group?${new URLSearchParams({ id: next.id, ...(page === null ? {} : { offset: page }) })}`) : null;
  draw();
}

/** Do something that the server is asked for; what goes wrong is said, and the queue is read again. */
async function attempt(work) {
  if (busy) return;
  busy = true;
  problem("");
  try {
    await work();
  } catch (error) {
    problem(error.message);
    try {
      const keep = new Set(out);
      state = await ask("state");
      if (!sampling) await go(group?.id);
      for (const item of group?.items ?? []) if (keep.has(item.row)) out.add(item.row);
      draw();
    } catch {
      // It was said already that the server is gone.
    }
  }
  busy = false;
}

function problem(words) {
  byId("problem").textContent = words;
  byId("problem").hidden = !words;
}

const decide = (action, more = {}) =>
  attempt(async () => {
    if (action !== "undo" && !group) return;
    state = await ask("decide", { seq: state.seq, action, group: group?.id ?? "", out: [...out], ...more });
    const at = skipped.indexOf(state.show);
    if (action === "undo" && at >= 0) skipped.splice(at, 1);
    await go(state.show);
    say(group ? `${group.words}, ${plural(group.n, "image")}` : "nothing is left to decide");
  });

const judge = () =>
  attempt(async () => {
    const good = group.items.map((item) => item.row).filter((row) => !out.has(row));
    state = await ask("judge", { seq: state.seq, good, bad: [...out] });
    await go(null);
  });

const sample = () =>
  facts.sampled ||
  attempt(async () => {
    group = { ...(await ask("sample")), words: "random sample of what is kept", kind: "sample", question: "image", id: null };
    sampling = true;
    page = null;
    out.clear();
    draw();
  });

function skip() {
  if (!group) return;
  if (!sampling) {
    if (skipped.includes(group.id)) skipped.splice(skipped.indexOf(group.id), 1);
    skipped.push(group.id);
  }
  attempt(() => go(null));
}

function turn() {
  if (!group || sampling) return;
  page = page === null ? 0 : page + group.items.length >= group.n ? null : page + group.items.length;
  attempt(() => go(group.id));
}

function relabel() {
  if (!group?.can_relabel) return;
  if (group.label) decide("relabel");
  else {
    byId("relabel").hidden = false;
    byId("label").value = "";
    byId("label").focus();
  }
}

// Drawing

function draw() {
  const left = queue();
  byId("about").textContent = `${plural(state.groups, "group")}, ${plural(state.remaining, "image")} to decide · ${count(state.dropped)} dropped, ${count(state.kept)} kept, ${count(state.relabelled)} relabelled of ${count(state.rows)} · ${state.reviewer}`;
  byId("nav").replaceChildren(
    ...left.slice(0, 200).map((one) =>
      h("button", { type: "button", "aria-current": !sampling && one.id === group?.id ? "true" : null, onclick: () => attempt(() => go(one.id)) }, h("b", {}, count(one.n)), " ", own(`${one.kind}: ${one.words}`)),
    ),
  );
  byId("relabel").hidden = true;
  byId("group").replaceChildren(...(group ? groupParts() : [h("h2", {}, "Nothing is left to decide")]));
  byId("audit").textContent = facts.sampled ? "" : audit(state.audit);
}

function audit({ n, bad, of, level, at_most }) {
  if (!n) return `Random sample: none yet. Press a to learn what share of the ${plural(of, "kept image")} is bad.`;
  return `Random sample: ${bad} of ${count(n)} bad, so at most ${(100 * at_most).toFixed(1)} % of the ${plural(of, "kept image")} (${100 * level} % confidence).`;
}

/** Return what keep and drop mean; of a sample those that were taken out are the contrary, in one decision. */
function verbs() {
  const words = OF_KIND[group.kind]?.(group.question) ?? VERBS[group.question];
  if (group.kind !== "sample" || group.question === "label" || !out.size) return words;
  return [`${words[0]}; taken out: ${words[1].toLowerCase()}`, `${words[1]}; taken out: ${words[0].toLowerCase()}`];
}

function groupParts() {
  const [keep, drop] = verbs();
  const button = (key, words, act, on = true) => (on ? h("button", { type: "button", "data-key": key, onclick: act }, h("kbd", {}, key), ` ${words}`) : null);
  const taken = out.size ? `, ${out.size} ${sampling ? "bad" : "taken out"}` : "";
  const shown = group.items.length < group.n ? `${count(group.items.length)} of ${plural(group.n, "image")}` : plural(group.n, "image");
  const typical = group.typical && group.typical < group.items.length ? group.typical : 0;
  const bar = sampling
    ? [button("k", `Done: ${out.size} bad, the rest good`, judge), button("n", "Leave", skip)]
    : [
        button("k", keep, () => decide("keep")),
        button("d", drop, () => decide("drop")),
        button("i", UNSURE, () => decide("unsure"), group.kind === "sample"),
        button("r", group.label ? `Relabel as ${tail(group.label, 30)}` : "Relabel", relabel, group.can_relabel),
        button("s", "Split", () => decide("split"), group.n > 1),
        button("n", "Skip", skip),
        button("v", page === null ? "All images" : "Next page", turn, group.n > 1),
        button("u", "Undo", () => decide("undo"), state.can_undo),
      ];
  const tiles = group.items.map(tile);
  return [
    h("h2", {}, own(`${group.kind}: ${group.words}`)),
    h("p", { class: "soft", id: "shown" }, `${shown}${page === null ? "" : `, from ${count(page + 1)}`}${taken}${sampling ? "; take out the bad ones" : ""}`),
    h("div", { class: "bar" }, bar),
    ...(typical
      ? [h("h3", {}, "Typical"), h("ul", {}, tiles.slice(0, typical)), h("h3", {}, "At the edge"), h("ul", {}, tiles.slice(typical))]
      : [h("ul", {}, tiles)]),
  ];
}

function image(row, key) {
  return h("img", { src: `${base}thumb/${row}.jpg`, alt: key, loading: "lazy", decoding: "async", draggable: "false" });
}

function tile(item) {
  const pictures = [image(item.row, item.key), item.beside ? image(item.beside.row, item.beside.key) : null];
  const element = h(
    "li",
    {},
    h("button", { type: "button", class: "look", "data-row": item.row, "aria-pressed": String(out.has(item.row)), onclick: () => take(item.row) }, pictures),
    own(tail(item.key, 40), { class: "key", title: item.key }),
    item.why && item.why !== group.words ? own(item.why, { class: "why", title: item.why }) : null,
    item.label ? own(`labelled ${item.label}`, { class: "why", title: item.label }) : null,
  );
  element.classList.toggle("out", out.has(item.row));
  return element;
}

/** Take an image out of the decision, or put it back. */
function take(row) {
  if (out.has(row)) out.delete(row);
  else out.add(row);
  draw();
  document.querySelector(`[data-row="${row}"]`)?.focus();
}

function move(step) {
  const all = [...document.querySelectorAll("[data-row]")];
  if (!all.length) return;
  const at = all.indexOf(document.activeElement);
  all[at < 0 ? 0 : Math.min(Math.max(at + step, 0), all.length - 1)].focus();
}

/** Return how many images stand in a line of the grid. */
function across() {
  const all = [...document.querySelectorAll("[data-row]")];
  const top = all[0]?.getBoundingClientRect().top;
  return Math.max(1, all.filter((one) => one.getBoundingClientRect().top === top).length);
}

function look() {
  const row = document.activeElement?.dataset?.row;
  if (row === undefined) return;
  const key = group.items.find((item) => String(item.row) === row)?.key ?? "";
  byId("detail").replaceChildren(h("img", { src: `${base}image/${row}.jpg`, alt: key }), own(key));
  byId("detail").showModal();
}

function help() {
  byId("help").replaceChildren(h("h2", {}, "Keys"), h("dl", {}, KEYS.flatMap(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)])));
  byId("help").showModal();
}

const ACTIONS = {
  k: () => (sampling ? judge() : decide("keep")),
  d: () => sampling || decide("drop"),
  r: () => sampling || relabel(),
  i: () => group?.kind === "sample" && decide("unsure"),
  s: () => sampling || decide("split"),
  n: skip,
  " ": skip,
  u: () => sampling || decide("undo"),
  v: turn,
  a: sample,
  z: look,
  "?": help,
  x: () => document.activeElement?.dataset?.row !== undefined && take(Number(document.activeElement.dataset.row)),
  arrowright: () => move(1),
  arrowleft: () => move(-1),
  arrowdown: () => move(across()),
  arrowup: () => move(-across()),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) {
    if (event.key.toLowerCase() === "z") byId("detail").close();
    return;
  }
  if (event.target === byId("label")) {
    if (event.key === "Escape") byId("relabel").hidden = true;
    return;
  }
  const action = ACTIONS[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  if (!event.repeat || event.key.startsWith("Arrow")) action();
});

byId("relabel").addEventListener("submit", (event) => {
  event.preventDefault();
  if (byId("label").value.trim()) decide("relabel", { label: byId("label").value.trim() });
});
byId("title").textContent = facts.title;
byId("next").textContent = facts.next;
byId("browse").setAttribute("href", `${base}browse`);
byId("keys").addEventListener("click", help);
byId("labels").replaceChildren(...facts.classes.map((name) => h("option", { value: name })));
attempt(async () => {
  state = await ask("state");
  await go(null);
});
