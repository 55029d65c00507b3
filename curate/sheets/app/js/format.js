// Numbers in words.

const counted = new Intl.NumberFormat("en");

function count(n) {
  return counted.format(n);
}

/** Return "1 image", "2 images". */
function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** Return four significant digits, without trailing zeros; a dash where nothing is known. */
function number(x) {
  if (x === null || x === undefined) return "–";
  if (typeof x !== "number") return String(x);
  if (Number.isInteger(x)) return Math.abs(x) < 1e15 ? count(x) : x.toExponential(3);
  const size = Math.abs(x);
  if (size < 1e-3 || size >= 1e6) return x.toExponential(2);
  return String(Number(x.toPrecision(4)));
}

/** Return a long text by its end, which tells more than its beginning: the name of a file, the last of a reason. */
function tail(text, most) {
  const points = [...String(text)]; // code points: no half of a pair is cut off
  return points.length > most ? `…${points.slice(1 - most).join("")}` : String(text);
}

function percent(part, whole) {
  if (!whole) return "–";
  const share = (100 * part) / whole;
  if (share > 99 && share < 100) return `${Math.min(99.9, Number(share.toFixed(1)))} %`; // never a round lie
  return share > 0 && share < 0.1 ? "< 0.1 %" : `${share.toFixed(share < 10 ? 1 : 0)} %`;
}

function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; n >= 1000 && at < units.length - 1; at += 1) n /= 1000;
  return `${Number(n.toPrecision(3))} ${units[at]}`;
}
