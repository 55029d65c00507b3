// The keyboard and the theme.

const KEYS = [
  ["?", "this help"],
  ["/", "search"],
  ["1 … 9", "go to a section"],
  ["t", "dark or light"],
  ["arrows", "from image to image"],
  ["Enter", "an image in full; there ← and → go on, Esc closes"],
  ["x", "tick the image in focus"],
  ["Shift + click", "tick all from the last one ticked"],
  ["d", "download the ticked keys"],
];

function showHelp() {
  const help = byId("help");
  if (!help.children.length) {
    help.append(
      h("div", { class: "detail-head" }, h("h2", {}, "Keys"), h("button", { type: "button", class: "icon", "aria-label": "Close", onclick: () => help.close() }, "×")),
      h("dl", {}, KEYS.flatMap(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)])),
      h("p", { class: "soft" }, "On the map: drag to pan, wheel or pinch to zoom; Lasso and Box choose images to tick or to show. Ticked keys go into a CSV with the one column key."),
    );
  }
  help.showModal();
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").setAttribute("aria-pressed", String(theme === "dark"));
  try {
    localStorage.setItem("curate-theme", theme);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  changes.dispatchEvent(new Event("theme"));
}

function makeTheme() {
  try {
    const theme = localStorage.getItem("curate-theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // As the system has it.
  }
  byId("theme").setAttribute("aria-pressed", String(isDark()));
  byId("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changes.dispatchEvent(new Event("theme")));
}

function makeKeys() {
  byId("keys").addEventListener("click", showHelp);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.matches("input:not([type=checkbox]):not([type=range]), select, textarea")) return;
    const item = event.target.closest?.(".tile");
    const section = document.querySelectorAll("main > section")[Number(event.key) - 1];
    if (event.key === "?") showHelp();
    else if (event.key === "/") {
      event.preventDefault();
      goTo("images");
      byId("search")?.focus();
    } else if (event.key === "t") byId("theme").click();
    else if (event.key === "d" && ticks.keys.size) byId("save").click();
    else if (event.key === "x" && item) ticks.set([item.row], !ticks.keys.has(item.row.number));
    else if (section) goTo(section.id);
  });
}
